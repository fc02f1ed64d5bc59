"""``fit`` with layers and adaptive clip norms: one mechanism by every path, kept with the result, honest after it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.guide_models import mean, mean_guide
from support.numpyro_models import logistic
from support.small_models import logistic_data

import dpvi
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.declared.validation import FallbackWarning
from dpvi.models.functions import from_functions
from dpvi.models.numpyro import NumPyroModel
from dpvi.posterior.score import ScoreModel

LAYERS = dpvi.PerLayer({"location": 0.5, "*": 0.2})
QUANTILE = dpvi.QuantileClipping(target_quantile=0.7, learning_rate=0.3, count_share=0.2, expected_batch=4.0)
CLIPPINGS = pytest.mark.parametrize("clipping", [LAYERS, QUANTILE], ids=["layers", "quantile"])
VALUES = np.random.default_rng(1).normal(1.0, 2.0, 9)
NUM_STEPS = 60  # of all runs on the same records, whose draws are then compiled once


def plan_of(clipping, num_steps=12, **settings):
    clip_norm = clipping.clip_norm if isinstance(clipping, dpvi.PerLayer) else 0.7
    release = GaussianRelease("gradients", 0.6, num_steps, 0.3, clip_norm)
    return Plan(1.0, 1e-5, (release,), "a label for tests", clipping=clipping, **settings)


def guided(clipping, **settings):
    return dpvi.fit(
        mean, VALUES, plan_of(clipping), guide=mean_guide, optimizer=optax.sgd(0.05), seed=3, progress=False, **settings
    ).trace


@pytest.mark.usefixtures("x64")
@CLIPPINGS
def test_a_guide_is_clipped_the_same_with_gradients_of_single_records_and_without(clipping, monkeypatch):
    formed = guided(clipping, microbatch_size=4)
    monkeypatch.setattr("dpvi.gradients.ghost.choice._LARGE", 0)
    ghost = guided(clipping)
    np.testing.assert_allclose(ghost.noisy_sums, formed.noisy_sums, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ghost.final, formed.final, rtol=0, atol=1e-9)
    if clipping is QUANTILE:
        np.testing.assert_allclose(ghost.clip_norms, formed.clip_norms, rtol=1e-9)
        assert formed.clip_norms[0] == 0.7
        assert len(np.unique(formed.clip_norms)) == 12


@pytest.mark.usefixtures("x64")
@pytest.mark.filterwarnings("ignore:NOT PRIVATE:dpvi.PrivacyWarning")
def test_dpsvi_takes_the_same_steps_one_by_one():
    svi = dpvi.DPSVI(mean, mean_guide, optax.sgd(0.05), plan=plan_of(QUANTILE))
    whole = dpvi.DPSVI(mean, mean_guide, optax.sgd(0.05), plan=plan_of(QUANTILE))
    state = svi.init(jax.random.key(5), VALUES)
    path = []
    for _ in range(12):
        path.append(float(state.clip_norm))
        state = svi.update(state, VALUES)
    ran = whole.run(jax.random.key(5), VALUES, progress_bar=False)
    np.testing.assert_allclose(ran.result.trace.clip_norms, path, rtol=1e-10)
    np.testing.assert_allclose(ran.result.trace.final, state.xi, rtol=0, atol=1e-10)


@pytest.mark.parametrize("slots", [None, 3], ids=["one pass", "many passes"])
def test_the_count_is_of_all_records_that_were_sampled(slots, monkeypatch):
    """Scores are one-hot, so without noise the sum of a step is the list of those it sampled."""
    if slots is not None:
        monkeypatch.setattr("dpvi.run.preparation._MAX_PASS_ELEMENTS", slots * 10)
    one_hot = from_functions(lambda z: -0.5 * jnp.sum(z**2), lambda z, record: record @ z, 10)
    clipping = dpvi.QuantileClipping(target_quantile=0.5, learning_rate=1e-3, expected_batch=2.0)
    plan = dpvi.plan_nonprivate(0.5, 100, clip_norm=2.0, clipping=clipping)
    lengths = np.repeat([1.0, 3.0], [7, 3])  # seven are shorter than the clip norm, three are clipped to it
    trace = dpvi.fit(one_hot, np.diag(lengths), plan, seed=4, progress=False).trace
    sampled = trace.noisy_sums > 0
    np.testing.assert_allclose(trace.noisy_sums[:, 7:], sampled[:, 7:] * trace.clip_norms[:, None], rtol=1e-5)
    counts = -2.0 / 1e-3 * np.diff(np.log(trace.clip_norms.astype(float)))
    expected = 0.5 * sampled[:, :7].sum(axis=1) - 0.5 * sampled[:, 7:].sum(axis=1)
    np.testing.assert_allclose(counts, expected[:-1], atol=1e-3)
    assert sampled.sum(axis=1).max() > 6  # which three slots could not hold


def test_runs_side_by_side_adapt_apart():
    plan, (x, y) = plan_of(QUANTILE, NUM_STEPS), logistic_data(40)
    stacked = (np.stack([x, 5 * x]), np.stack([y, y]))
    results = dpvi.fit_many(logistic, stacked, plan, seeds=[1, 2], progress=False)
    alone = dpvi.fit(logistic, (stacked[0][1], y), plan, seed=2, progress=False)
    np.testing.assert_allclose(results[1].trace.clip_norms, alone.trace.clip_norms, rtol=1e-3)
    assert results[1].trace.clip_norms[-1] > 1.5 * results[0].trace.clip_norms[-1]


@pytest.mark.parametrize("clipping", [dpvi.PerLayer({"w": 2.0}), QUANTILE], ids=["layers", "quantile"])
def test_results_are_stored_with_what_was_done(clipping, tmp_path):
    result = dpvi.fit(logistic, logistic_data(40), plan_of(clipping, NUM_STEPS), seed=1, progress=False)
    result.save(tmp_path / "run.dpvi")
    loaded = dpvi.Result.load(tmp_path / "run.dpvi")
    assert loaded.plan == result.plan
    assert loaded.guarantee == result.guarantee
    np.testing.assert_array_equal(loaded.trace.clip_norms, result.trace.clip_norms)
    assert (loaded.trace.clip_norms is None) == (clipping is not QUANTILE)
    words = "count of the sampled records" if clipping is QUANTILE else "groups of parameters"
    assert words in str(result.guarantee)


def test_methods_that_need_noise_of_one_size_say_so():
    data, plan = logistic_data(40), plan_of(QUANTILE, NUM_STEPS)
    result = dpvi.fit(logistic, data, plan, estimator=dpvi.Vanilla(), seed=1, progress=False)
    assert result.posterior().method == "stationary"  # it reads the noise off the iterates
    with pytest.raises(ValueError, match="NA-DPVI needs noise of the same size"):
        result.posterior("na_dpvi")
    with pytest.raises(ValueError, match="no single scale"):
        plan.noise_scale


def test_a_plan_that_would_measure_falls_back():
    plan = plan_of(QUANTILE, NUM_STEPS, num_records=40, schedule=dpvi.Schedule())
    with pytest.warns(FallbackWarning, match="clipped to one fixed norm"):
        result = dpvi.fit(logistic, logistic_data(40), plan, seed=1, progress=False)
    assert result.trace.segments is None
    assert result.posterior().method == "stationary"


@CLIPPINGS
def test_no_law_of_scores_without_one_fixed_norm(clipping):
    structure = (jax.ShapeDtypeStruct((2,), jnp.dtype("float32")), jax.ShapeDtypeStruct((), jnp.dtype("int32")))
    with pytest.raises(ValueError, match="clipped to one fixed norm"):
        ScoreModel(NumPyroModel(logistic, structure), plan_of(clipping, num_records=40))


def test_layers_that_the_model_does_not_have_are_refused_before_the_run():
    with pytest.raises(ValueError, match=r"none of \['v'\] fits \['w'\]"):
        dpvi.fit(logistic, logistic_data(9), plan_of(dpvi.PerLayer({"v": 1.0})), progress=False)
    with pytest.raises(ValueError, match=r"none of \['loc\*'\] fits \['spread'\]"):
        guided(dpvi.PerLayer({"loc*": 1.0}))
    with pytest.raises(ValueError, match=r"Use Aligned\(\)"):
        dpvi.fit(
            logistic, logistic_data(9), plan_of(dpvi.PerLayer({"*": 1.0})), estimator=dpvi.Vanilla(), progress=False
        )
