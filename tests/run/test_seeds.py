"""Seeds that can be found by trying: nothing is promised, everything says so, and where a run starts tells nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.guide_models import mean, mean_guide
from support.small_models import RECORDS, exact_plan, location_model, private_plan

import dpvi
from dpvi.declared.guarantee import Circumstances, kind_of_seed
from dpvi.mechanism.rng import root_key, streams

PLAN = private_plan(6)
SMALL, LARGE = 123, 2**128 + 77
CAPITALS = "NOT PRIVATE: sampling and noise came from a seed below 2^128, which can be found by trying"


def fit(seed=None, plan=PLAN, **options):
    return dpvi.fit(location_model(), RECORDS, plan, seed=seed, progress=False, **options)


def old_start(seed: int) -> np.ndarray:
    """Where runs started when the start followed from the seed."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(streams(root_key(seed)).model)))
    return np.asarray(0.1 * rng.normal(size=2), np.float32)


def found_by_trying(location: np.ndarray, seeds: range) -> list[int]:
    """The seeds from which such a start follows."""
    return [seed for seed in seeds if np.array_equal(old_start(seed), location)]


# Attack 3: the published first iterate identifies a small seed, and with it all noise


def test_a_brute_force_over_seeds_found_the_old_start_and_does_not_find_the_new_one(monkeypatch):
    seeds = range(200)
    with monkeypatch.context() as patched:
        patched.setattr("dpvi.run.fitting._location", lambda model, initial: jnp.asarray(old_start(SMALL)))
        assert found_by_trying(fit(SMALL).trace.iterates[0, :2], seeds) == [SMALL]
    assert found_by_trying(fit(SMALL).trace.iterates[0, :2], seeds) == []


def test_all_runs_start_at_the_same_place_bit_for_bit():
    first = fit(SMALL).trace.iterates[0]
    for seed in (1, LARGE, None):
        np.testing.assert_array_equal(fit(seed).trace.iterates[0], first)
    stacked = np.stack([RECORDS, RECORDS])
    for result in dpvi.fit_many(location_model(), stacked, PLAN, seeds=[5, 6], progress=False):
        np.testing.assert_array_equal(result.trace.iterates[0], first)
    assert 0 < np.abs(first[:2]).max() < 0.5
    assert first[0] != first[1], "exchangeable components must be able to part"


def test_guides_start_at_the_same_place_too():
    starts = [
        dpvi.fit(mean, np.zeros(9), PLAN, guide=mean_guide, seed=seed, progress=False).trace.iterates[0]
        for seed in (1, LARGE)
    ]
    for _ in range(2):
        starts.append(np.asarray(dpvi.DPSVI(mean, mean_guide, optax.sgd(0.1), plan=PLAN).init(None, np.zeros(9)).xi))
    for start in starts[1:]:
        np.testing.assert_array_equal(start, starts[0])


# What a run with a small seed says


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (None, "none"),
        (0, "guessable"),
        (2**128 - 1, "guessable"),
        (-(2**128) + 1, "guessable"),
        (np.int64(7), "guessable"),
        (2**128, "secret"),
        (-(2**128), "secret"),
    ],
)
def test_a_seed_is_secret_from_128_bits_on(seed, kind):
    assert kind_of_seed(seed) == kind


def test_a_small_seed_is_not_private_and_all_that_prints_says_so(tmp_path):
    result = fit(SMALL)
    assert not result.guarantee.private
    assert result.guarantee.epsilon == np.inf
    assert str(result.guarantee).startswith(CAPITALS)
    assert "Without this weakness it would be (ε = 1, δ = 1e-05)-differential privacy" in str(result.guarantee)
    assert result.guarantee.planned == PLAN.guarantee
    assert result.plan.epsilon == 1.0, "what was planned stays readable"
    posterior = result.posterior("last")
    for shown in (repr(result), repr(posterior), str(posterior.summary(num_samples=50))):
        assert CAPITALS in shown
    result.save(tmp_path / "result.npz")
    with np.load(tmp_path / "result.npz") as stored:
        assert '"promise": "NOT PRIVATE"' in stored["header"].tobytes().decode()
    assert CAPITALS in repr(dpvi.Result.load(tmp_path / "result.npz"))


def test_a_guides_posterior_says_so(tmp_path):
    result = dpvi.fit(mean, np.zeros(9), PLAN, guide=mean_guide, seed=1, progress=False)
    assert CAPITALS in repr(result.posterior("last"))


def test_the_progress_bar_says_so(capsys):
    dpvi.fit(location_model(), RECORDS, PLAN, seed=SMALL)
    assert "dpvi NOT PRIVATE" in capsys.readouterr().err
    dpvi.fit_many(location_model(), np.stack([RECORDS] * 2), PLAN, seeds=[LARGE, SMALL])
    assert "dpvi NOT PRIVATE" in capsys.readouterr().err
    dpvi.fit_many(location_model(), np.stack([RECORDS] * 2), PLAN, seeds=[LARGE, LARGE + 1])
    assert "dpvi ε = 1" in capsys.readouterr().err


def test_a_large_seed_is_assumed_to_be_secret_and_none_needs_no_word():
    stated = fit(LARGE).guarantee
    assert stated.private
    assert "explicit seed" in str(stated)
    assert "whoever knows it can remove the noise" in str(stated)
    assert fit().guarantee == PLAN.guarantee
    assert "NOT PRIVATE" not in repr(fit().posterior("last"))


def test_each_of_many_fits_speaks_for_itself():
    stacked = np.stack([RECORDS, RECORDS + 1])
    fitted = dpvi.fit_many(location_model(), stacked, PLAN, seeds=[SMALL, LARGE], progress=False)
    assert [result.guarantee.private for result in fitted] == [False, True]


def test_a_plan_without_noise_has_no_promise_to_break():
    assert "no noise was planned" in str(fit(SMALL, exact_plan(2)).guarantee)


def test_what_is_broken_stays_broken_in_a_joint_statement():
    broken = PLAN.guarantee.under(Circumstances("guessable"))
    for pair in ((broken, PLAN.guarantee), (PLAN.guarantee, broken), (broken, broken)):
        joint = dpvi.privacy.joint_guarantee([PLAN, PLAN], pair)
        assert not joint.private
        assert str(joint).startswith(CAPITALS)
        assert joint.planned is not None
        assert joint.planned.epsilon == 2.0
