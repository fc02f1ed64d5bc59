"""Layers and adaptive clip norms as users run them: noise and a record's influence, seen in the trace of ``fit``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import dpvi
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.models.functions import from_functions

SIGMA, RATE, BATCH = 1.3, 1e-3, 10.0
PARTS = {"a": (3,), "b": (6,), "c": (2,)}
LINEAR = from_functions(
    lambda z: -0.5 * sum((part**2).sum() for part in z.values()),
    lambda z, record: sum((record[name] * part).sum() for name, part in z.items()),
    PARTS,
)
LAYERS = dpvi.PerLayer({"b": 0.5, "*": 4.0})
OF_B = np.repeat([False, True, False], [3, 6, 2])


def plan_of(clipping, num_steps, sampling_rate=1.0, clip_norm=2.0):
    clip_norm = clipping.clip_norm if isinstance(clipping, dpvi.PerLayer) else clip_norm
    release = GaussianRelease("gradients", sampling_rate, num_steps, SIGMA, clip_norm)
    return Plan(1.0, 1e-5, (release,), "none: a test of the mechanism", clipping=clipping)


def quantile(**changes):
    return dpvi.QuantileClipping(**{"learning_rate": RATE, "count_share": 0.4, "expected_batch": BATCH, **changes})


def records(*rows):
    """Records with these scores, (n, 11)."""
    starts = np.cumsum([0, 3, 6])
    table = np.stack(rows)
    return {name: table[:, at : at + PARTS[name][0]] for name, at in zip(PARTS, starts, strict=True)}


def trace_of(plan, data, seed):
    return dpvi.fit(LINEAR, data, plan, seed=seed, progress=False).trace


def noisy_counts(trace, clipping):
    """The centred counts that were released, read back from the clip norms they led to."""
    steps = np.diff(np.log(trace.clip_norms.astype(np.float64)))
    return clipping.expected_batch * (clipping.target_quantile - 0.5 - steps / clipping.learning_rate)


def is_standard_normal(noise):
    return stats.kstest(noise, "norm").pvalue > 0.001


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_noise_of_gradients_follows_the_clip_norm_and_the_count_has_its_own(precision, request):
    if precision == "float64":
        request.getfixturevalue("x64")
    clipping = quantile()
    trace = trace_of(plan_of(clipping, 800), records(*np.zeros((7, 11))), seed=3)  # all unclipped: 7/2 in the centre
    assert trace.clip_norms.shape == (800,)
    assert trace.clip_norms[0] == 2.0
    assert trace.clip_norms[-1] < 0.8 * trace.clip_norms[0]  # it moved, so that its noise had to
    noise = (trace.noisy_sums / trace.clip_norms[:, None] / clipping.gradient_noise_multiplier(SIGMA)).reshape(-1)
    count = (noisy_counts(trace, clipping) - 7 / 2) / clipping.count_noise(SIGMA)
    assert is_standard_normal(noise)
    assert is_standard_normal(count)
    assert abs(stats.pearsonr(trace.noisy_sums[:-1, 0] / trace.clip_norms[:-1], count).statistic) < 4 / np.sqrt(799)
    # named wrong answers: noise for the count taken from nowhere, a clip norm that noise does not follow, a count that
    # is noised as if it were not centred, and a count that is not centred
    assert not is_standard_normal(noise * clipping.gradient_noise_multiplier(SIGMA) / SIGMA)
    assert not is_standard_normal(trace.noisy_sums.reshape(-1) / 2.0 / clipping.gradient_noise_multiplier(SIGMA))
    assert not is_standard_normal(count / 2)
    assert not is_standard_normal(count - 7 / 2 / clipping.count_noise(SIGMA))


@pytest.mark.parametrize("size", [0.0, 1e3], ids=["unclipped", "clipped"])
def test_one_record_moves_gradients_and_count_by_no_more_than_was_accounted(size):
    """Means over many steps at rate 1, where a clipped record moves both as far as it can: 1/σ in units of noise."""
    steps, clipping = 4000, quantile(learning_rate=1e-4)
    plan, nobody = plan_of(clipping, steps), np.zeros(11)
    somebody = np.eye(11)[4] * size

    def mean_release(data, seed):
        trace = trace_of(plan, data, seed)
        scaled = trace.noisy_sums.astype(np.float64) / trace.clip_norms[:, None]
        gradients = scaled.mean(axis=0) / clipping.gradient_noise_multiplier(SIGMA)
        return np.append(gradients, noisy_counts(trace, clipping).mean() / clipping.count_noise(SIGMA))

    moved = mean_release(records(nobody, somebody), 11) - mean_release(records(nobody), 12)
    error = np.sqrt(2 / steps)
    influence = np.hypot(moved[4], moved[-1])
    assert np.all(np.abs(np.delete(moved, [4, 11])) < 4.5 * error)
    assert abs(abs(moved[-1]) - 0.5 / clipping.count_noise(SIGMA)) < 4 * error
    if size == 0:
        assert abs(moved[4]) < 4.5 * error
    else:
        assert abs(influence - 1 / SIGMA) < 4 * error
        # the named wrong answer: noise of a count that is taken for one of sensitivity 1 moves it by half as much
        assert abs(np.hypot(moved[4], moved[-1] / 2) - 1 / SIGMA) > 4 * error


def test_layers_have_noise_of_their_own_and_a_record_moves_them_by_what_was_accounted():
    steps, plan = 3000, plan_of(LAYERS, 3000)
    scales = np.where(OF_B, *LAYERS.noise_scales(SIGMA))
    empty = trace_of(plan, records(np.zeros(11)), seed=5)
    noise = empty.noisy_sums / scales
    assert is_standard_normal(noise[:, OF_B].reshape(-1)[:10_000])
    assert is_standard_normal(noise[:, ~OF_B].reshape(-1)[:10_000])
    # named wrong answers: each layer's noise as if it were alone, and the same noise everywhere
    assert not is_standard_normal((noise * np.sqrt(2))[:, OF_B].reshape(-1)[:10_000])
    assert not is_standard_normal((empty.noisy_sums / (SIGMA * plan.clip_norm))[:, OF_B].reshape(-1)[:10_000])
    person = np.zeros(11)
    person[[1, 10]] = 600.0, 800.0  # both in the layer of everything but b
    person[5] = -1e3
    moved = (trace_of(plan, records(np.zeros(11), person), 6).noisy_sums - empty.noisy_sums).mean(axis=0)
    error = np.sqrt(2 / steps) * scales
    expected = np.zeros(11)
    expected[[1, 5, 10]] = 2.4, -0.5, 3.2
    assert np.all(np.abs(moved - expected) < 4.5 * error)
    assert abs(np.linalg.norm((moved / scales)[[1, 5, 10]]) - 1 / SIGMA) < 4.5 * np.sqrt(2 / steps)
