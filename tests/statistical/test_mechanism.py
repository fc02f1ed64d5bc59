"""The mechanism as users run it: the whole of ``fit``, observed from outside through its trace."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dpvi
from dpvi import privacy
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.models.functions import from_functions

LINEAR = from_functions(lambda z: -0.5 * jnp.sum(z**2), lambda z, record: record @ z, 20)


def plan_of(sampling_rate: float, num_steps: int, noise_multiplier: float, clip_norm: float = 2.0) -> Plan:
    release = GaussianRelease("gradients", sampling_rate, num_steps, noise_multiplier, clip_norm)
    return Plan(1.0, 1e-5, (release,), "none: a test of the mechanism")


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_released_noise_has_the_planned_scale(precision, request):
    if precision == "float64":
        request.getfixturevalue("x64")
    plan = plan_of(0.1, 500, noise_multiplier=3.0)
    trace = dpvi.fit(LINEAR, np.zeros((50, 20)), plan, seed=11, progress=False).trace
    assert trace.noisy_sums.dtype == precision
    noise = trace.noisy_sums.reshape(-1) / plan.noise_scale
    assert stats.kstest(noise, "norm").pvalue > 0.001
    for factor in (2 / 3, 3 / 2):
        assert stats.kstest(noise / factor, "norm").pvalue < 1e-6
    lagged = stats.pearsonr(noise[:-20], noise[20:]).statistic  # the same coordinate, one step later
    assert abs(lagged) < 4 / np.sqrt(len(noise))


def inclusion_checks(included: np.ndarray, rate: float) -> dict[str, bool]:
    """Whether each record is in at the right rate, and pairs and batch sizes behave as if independent."""
    steps, records = included.shape
    rates = included.mean(axis=0)
    rate_error = np.sqrt(rate * (1 - rate) / steps)
    pairs = (included[:, :, None] * included[:, None, :]).mean(axis=0)[np.triu_indices(records, 1)]
    pair_error = np.sqrt(rate**2 * (1 - rate**2) / steps)
    size_variance = included.sum(axis=1).var()
    expected = records * rate * (1 - rate)
    return {
        "rates": bool(np.all(np.abs(rates - rate) < 4.5 * rate_error)),
        "pairs": bool(np.all(np.abs(pairs - rate**2) < 5 * pair_error)),
        "sizes": bool(abs(size_variance - expected) < 5 * expected * np.sqrt(2 / steps)),
    }


@pytest.mark.parametrize("slots", [None, 3], ids=["one pass", "many passes"])
def test_every_record_enters_independently_at_the_planned_rate(slots, monkeypatch):
    """Scores are one-hot, so the noiseless sum of a step *is* the list of records it sampled."""
    if slots is not None:
        monkeypatch.setattr("dpvi.run.preparation._MAX_PASS_ELEMENTS", slots * 20)
    rate, steps = 0.3, 6000
    plan = dpvi.plan_nonprivate(sampling_rate=rate, num_steps=steps)
    trace = dpvi.fit(LINEAR, np.eye(20), plan, seed=4, progress=False).trace
    included = trace.noisy_sums
    assert set(np.unique(included)) <= {0.0, 1.0}
    assert all(inclusion_checks(included, rate).values())
    rng = np.random.default_rng(0)
    fixed_size = rng.permuted(np.tile(np.arange(20) < 6, (steps, 1)), axis=1).astype(float)
    assert not inclusion_checks(fixed_size, rate)["sizes"]
    assert not inclusion_checks(fixed_size, rate)["pairs"]
    poisson = rng.random((steps, 20)) < rate
    truncated = poisson & (np.cumsum(poisson, axis=1) <= 7)  # a full batch drops the last rows
    assert all(inclusion_checks(poisson.astype(float), rate).values())
    assert not inclusion_checks(truncated.astype(float), rate)["rates"]


def empirical_epsilon(without: np.ndarray, with_record: np.ndarray, delta: float) -> float:
    """A lower bound on ε that holds with 99.9 % confidence, from threshold tests on the released number.

    The threshold is chosen on one half of the runs and judged on the other (Clopper-Pearson).
    """
    half = len(without) // 2
    thresholds = np.quantile(with_record[:half], np.linspace(0.05, 0.98, 60))
    hits = np.array([(with_record[:half] > t).mean() for t in thresholds])
    false = np.array([max((without[:half] > t).mean(), 20 / half) for t in thresholds])
    best = thresholds[np.argmax((hits - delta) / false)]
    true_positives, false_positives = (int((sample[half:] > best).sum()) for sample in (with_record, without))
    low = stats.beta.ppf(5e-4, true_positives, half - true_positives + 1)
    high = stats.beta.ppf(1 - 5e-4, false_positives + 1, half - false_positives)
    return float(np.log(max(low - delta, 1e-12) / high))


def released(noise_multiplier: float, with_record: bool, rate: float, runs: int, seed: int) -> np.ndarray:
    """The first release of many independent runs, on data with or without the record in question.

    One run of many steps at a frozen step size is as many independent one-step runs: the score does not depend on z.
    """
    one = from_functions(lambda z: -0.5 * jnp.sum(z**2), lambda z, record: jnp.sum(record * z), 1)
    records = np.array([[0.0], [50.0]]) if with_record else np.array([[0.0]])  # clipped to C = 2
    return dpvi.fit(one, records, plan_of(rate, runs, noise_multiplier), seed=seed, progress=False).trace.noisy_sums[
        :, 0
    ]


def test_a_one_step_audit_stays_below_the_promise_and_catches_half_the_noise():
    noise_multiplier, rate, delta, runs = 1.0, 0.5, 0.01, 40_000
    promised = privacy.epsilon(noise_multiplier, delta, rate, 1)
    honest = empirical_epsilon(
        *(released(noise_multiplier, flag, rate, runs, seed=21 + flag) for flag in (False, True)), delta
    )
    assert 0.3 * promised < honest < promised
    cheat = empirical_epsilon(
        *(released(noise_multiplier / 2, flag, rate, runs, seed=31 + flag) for flag in (False, True)), delta
    )
    assert cheat > promised
