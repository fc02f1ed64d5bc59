"""Studies in groups, kept in a folder: a killed one goes on, another one is refused, nothing un-noised is written."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.launch import REPOSITORY, SECONDS, environment
from support.small_models import (
    STUDY_GROUP,
    STUDY_RECORDS,
    STUDY_SETS,
    STUDY_STEPS,
    location_model,
    private_plan,
    study,
)

import dpvi
from dpvi.mechanism.rng import _derived, root_key
from dpvi.models.functions import from_functions
from dpvi.run.many import _Study
from dpvi.run.program import lanes
from dpvi.run.study_folder import fingerprint, study_key

NUM_GROUPS = -(-STUDY_SETS // STUDY_GROUP)
WORKER = Path(__file__).parents[1] / "support" / "study_worker.py"


@pytest.fixture(scope="module")
def uninterrupted():
    """The study without a folder."""
    return study()


@pytest.fixture
def begun(tmp_path):
    """A finished study's folder."""
    study(tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture
def groups_fitted(monkeypatch):
    """The first data sets of the groups that were fitted, not read."""
    fitted, fit = [], _Study.fit

    def counted(self, members, bar):
        fitted.append(members[0])
        return fit(self, members, bar)

    monkeypatch.setattr(_Study, "fit", counted)
    return fitted


def assert_same(found, expected):
    assert len(found) == len(expected) == STUDY_SETS
    for one, other in zip(found, expected, strict=True):
        left, right = jax.tree.flatten(one.trace), jax.tree.flatten(other.trace)
        assert left[1] == right[1]
        for a, b in zip(left[0], right[0], strict=True):
            np.testing.assert_array_equal(a, b)
        assert one.guarantee == other.guarantee
        assert (one.plan, one.family, one.estimator, one.structure) == (
            other.plan,
            other.family,
            other.estimator,
            other.structure,
        )


def test_a_killed_study_goes_on_and_returns_what_an_uninterrupted_one_does(tmp_path, uninterrupted, groups_fitted):
    folder, cache = tmp_path / "study", REPOSITORY / ".pytest_cache" / "compiled"
    command = [sys.executable, str(WORKER), str(folder), str(cache)]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == -9, ended.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["group-00000", "study.json"]
    assert_same(study(folder), uninterrupted)
    assert groups_fitted == [2, 4], "the group that was there must not be fitted again"
    groups_fitted.clear()
    assert_same(study(folder), uninterrupted)
    assert groups_fitted == []


def test_results_that_were_kept_make_posteriors(begun):
    for result in study(begun):  # read, not fitted
        draws = result.posterior("average").sample_unconstrained(5, jax.random.key(0))
        assert np.all(np.isfinite(draws))


def test_groups_change_nothing_but_rounding(uninterrupted):
    together = study(group_size=None)
    for one, other in zip(uninterrupted, together, strict=True):
        np.testing.assert_array_equal(one.trace.noisy_sums, other.trace.noisy_sums)
    # power: data sets do differ by more than that
    assert np.abs(uninterrupted[0].trace.noisy_sums - uninterrupted[1].trace.noisy_sums).max() > 0.1


def test_parts_that_a_cache_holds_change_nothing_but_rounding(uninterrupted, monkeypatch):
    """Five lanes, two at a time: the last part takes one of the second again."""
    sizes, at_once = [], lanes.lanes_at_once

    def small(num_lanes, most):
        sizes.append((num_lanes, at_once(num_lanes, min(most, 2))))
        return sizes[-1][1]

    monkeypatch.setattr(lanes, "lanes_at_once", small)
    parted = study(group_size=None)
    assert set(sizes) == {(STUDY_SETS, 2)}
    for one, other in zip(uninterrupted, parted, strict=True):
        np.testing.assert_array_equal(one.trace.noisy_sums, other.trace.noisy_sums)
        np.testing.assert_allclose(one.trace.final, other.trace.final, rtol=1e-6, atol=1e-6)


def test_one_bar_shows_the_steps_of_all_groups(begun, capsys):
    study(progress=True)
    shown = capsys.readouterr().err
    assert f"{NUM_GROUPS * STUDY_STEPS}/{NUM_GROUPS * STUDY_STEPS}" in shown
    assert "\n" not in shown.strip(), "a second bar would begin on a line of its own"
    study(begun, progress=True)
    assert f"{NUM_GROUPS * STUDY_STEPS}/{NUM_GROUPS * STUDY_STEPS}" in capsys.readouterr().err


def shifted(z, x):
    return -0.5 * jnp.sum((x - z - 1) ** 2)


OTHER_MODEL = from_functions(log_prior=lambda z: -0.5 * jnp.sum(z**2), log_likelihood=shifted, parameters=2)
OTHER_DATA = np.random.default_rng(8).normal(0.5, 1.0, (STUDY_SETS, STUDY_RECORDS, 2))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"plan": private_plan(STUDY_STEPS, noise_multiplier=1.5)}, "plan"),
        ({"data": OTHER_DATA}, "data"),
        ({"model": OTHER_MODEL}, "model, estimator, family or optimizer"),
        ({"optimizer": optax.adam(0.5)}, "model, estimator, family or optimizer"),
        ({"family": dpvi.FullRank()}, "model, estimator, family or optimizer"),
        ({"seeds": [111, 112, 113, 114, 116]}, "seeds"),
        ({"group_size": 3}, "group_size"),
        ({"initial_location": np.ones(2)}, "initial_location"),
    ],
    ids=["plan", "data", "model", "optimizer", "family", "seeds", "group_size", "initial_location"],
)
def test_a_folder_of_another_study_is_refused(begun, groups_fitted, changes, named):
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=f"these differ: .*{named}"):
        study(begun, **changes)
    assert groups_fitted == []
    assert {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()} == before


def test_the_same_model_written_again_is_the_same_study(begun, groups_fitted):
    study(begun, model=location_model(), optimizer=None)
    assert groups_fitted == []


def test_a_folder_says_nothing_of_records_and_seeds(begun, tmp_path):
    text = (begun / "study.json").read_text()
    numbers = {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", text)}
    assert not numbers & {STUDY_RECORDS, 111, 112, 113, 114, 115}
    assert STUDY_SETS in numbers, "power: numbers are found"
    # the same study in another folder has other fingerprints: their key is random, so nobody without it checks a guess
    study(tmp_path / "other")
    mine, other = (json.loads((folder / "study.json").read_text()) for folder in (begun, tmp_path / "other"))
    assert mine["settings"] == other["settings"]
    assert not set(mine["fingerprints"].values()) & set(other["fingerprints"].values())


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"seeds": None}, ValueError, "needs seeds"),
        ({"group_size": 0}, ValueError, "at least 1"),
        ({"group_size": 2.0}, ValueError, "whole number of at least 1, got 2.0"),
        ({"plan": None}, TypeError, r"plan must come from dpvi\.plan.* or be a list of such plans.*got NoneType"),
        ({"plan": 0.5}, TypeError, "got float"),
        ({"plan": [1.0] * STUDY_SETS}, TypeError, "list of such plans"),
        ({"plan": [private_plan(STUDY_STEPS)] * 2}, ValueError, "a list of one per data set; got 2"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(tmp_path, changes, kind, message):
    with pytest.raises(kind, match=message):
        study(tmp_path / "study", **changes)
    assert not (tmp_path / "study").exists()


def test_fingerprints_cannot_be_found_by_trying_seeds(begun):
    """The old key followed from the seeds: whoever tried them could check any guess about the records."""
    stored = json.loads((begun / "study.json").read_text())["fingerprints"]["data"]
    records = jax.tree.leaves(jnp.asarray(np.random.default_rng(7).normal(0.5, 1.0, (STUDY_SETS, STUDY_RECORDS, 2))))

    def guessed(seeds):
        derived = b"".join(_derived(root_key(seed), "study") for seed in seeds)
        return fingerprint(hashlib.sha256(derived).digest(), "data", records)

    seeds = [range(first, first + STUDY_SETS) for first in range(100, 120)]
    assert guessed([111, 112, 113, 114, 115]) in map(guessed, seeds), "power: so the old fingerprint was found"
    assert stored not in map(guessed, seeds)
    assert stored == fingerprint(study_key(begun), "data", records), "power: with the key a guess can be checked"


def test_the_key_lies_beside_the_folder_and_is_needed_to_go_on(begun, groups_fitted):
    key = begun.with_name("study.key")
    assert [path.name for path in begun.rglob("*") if path.suffix == ".key"] == []
    assert key.stat().st_mode & 0o077 == 0
    content = key.read_text()
    key.unlink()
    with pytest.raises(ValueError, match=r"the key of its fingerprints is missing: .*study\.key\. Put it back"):
        study(begun)
    assert not key.exists()
    key.write_text("nothing")
    with pytest.raises(ValueError, match=r"study\.key is damaged"):
        study(begun)
    key.write_text(content)
    study(begun)
    assert groups_fitted == []


def test_folders_that_hold_something_else_or_are_damaged_are_refused(tmp_path, begun):
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="not the folder of a study"):
        study(tmp_path / "else")
    (begun / "group-00001" / "00001.npz").unlink()
    with pytest.raises(ValueError, match="group-00001 was changed"):
        study(begun)
    (begun / "study.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        study(begun)


def test_sizes_that_fill_the_same_lanes_are_told_apart(tmp_path, monkeypatch):
    """On three devices groups of two and of three take three lanes each."""
    monkeypatch.setattr("dpvi.run.many.lane_mesh", lambda devices, size: (None, [0, 1, 2]))
    study(tmp_path / "study")
    with pytest.raises(ValueError, match="these differ: group_size"):
        study(tmp_path / "study", group_size=3)


def test_results_of_another_version_or_another_plan_are_not_taken_for_this_study(begun, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("dpvi.run.many._VERSION", "9.9.9")
        with pytest.raises(ValueError, match="these differ: version of dpvi"):
            study(begun)
    [other] = study(plan=private_plan(STUDY_STEPS, noise_multiplier=3.0), data=OTHER_DATA[:1], seeds=[116])
    other.save(begun / "group-00001" / "00001.npz")
    with pytest.raises(ValueError, match=r"group-00001 was changed: it has results of another plan"):
        study(begun)


def test_a_plan_for_every_data_set(tmp_path, uninterrupted, groups_fitted):
    noisy = private_plan(STUDY_STEPS, noise_multiplier=3.0)
    plans = [noisy if index in (1, 4) else private_plan(STUDY_STEPS) for index in range(STUDY_SETS)]
    results = study(tmp_path / "study", plan=plans)
    assert [result.plan.noise_multiplier for result in results] == [1.0, 3.0, 1.0, 1.0, 3.0]
    for index in (0, 2, 3):  # whichever others ran beside them
        np.testing.assert_allclose(results[index].trace.final, uninterrupted[index].trace.final, rtol=1e-5)
    for index in (1, 4):
        assert not np.allclose(results[index].trace.final, uninterrupted[index].trace.final, rtol=1e-2)
    num_fitted = len(groups_fitted)
    again = study(tmp_path / "study", plan=plans)
    assert len(groups_fitted) == num_fitted
    np.testing.assert_array_equal(again[4].trace.final, results[4].trace.final)


def test_a_seed_twice_would_cancel_the_noise_and_is_refused_under_one_plan_and_under_several():
    noisy = private_plan(STUDY_STEPS, noise_multiplier=3.0)
    plans = [private_plan(STUDY_STEPS)] * 4 + [noisy]
    # why: what two runs with one seed release differs by what their records differ by, and not by noise
    released = [
        dpvi.fit(location_model(), records, plans[0], seed=seed, progress=False).trace.noisy_sums[0]
        for records, seed in ((OTHER_DATA[0], 9), (OTHER_DATA[0] + 1e-4, 9), (OTHER_DATA[0], 10))
    ]
    assert np.linalg.norm(released[0] - released[1]) < 0.01 * plans[0].noise_scale
    assert np.linalg.norm(released[0] - released[2]) > 0.1 * plans[0].noise_scale
    for plan in (plans[0], plans):
        with pytest.raises(ValueError, match="numbers 0 and 4") as refused:
            study(plan=plan, seeds=[912345, 112, 113, 114, 912345])
        assert "912345" not in str(refused.value)
