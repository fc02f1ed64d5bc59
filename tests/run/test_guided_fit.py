"""``dpvi.fit`` with a guide: what it returns, stores and refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import Predictive
from numpyro.infer.autoguide import AutoDelta, AutoMultivariateNormal, AutoNormal
from support.guide_models import PIXELS, mean, mean_guide, vae, vae_guide
from support.numpyro_models import logistic
from support.small_models import exact_plan, private_plan

import dpvi
from dpvi.declared.validation import ConvergenceWarning, FallbackWarning, IntervalWarning
from dpvi.families.guide import GuideFamily
from dpvi.gradients import Guided
from dpvi.posterior import guided
from dpvi.posterior.guided import GuidePosterior
from dpvi.run.program import recorder
from dpvi.run.program.loop import Run
from dpvi.run.untold import run_within_memory

PLAN = private_plan(20)
Y = np.random.default_rng(1).normal(0.4, 1.0, 97)


def fit(model=mean, data=Y, plan=PLAN, guide=mean_guide, **options):
    options.setdefault("seed", 1)
    return dpvi.fit(model, data, plan, guide=guide, progress=False, **options)


@pytest.fixture(scope="module")
def fitted_mean():
    return fit()


@pytest.fixture(scope="module")
def fitted_vae():
    return fit(vae, PIXELS, guide=vae_guide)


def test_without_noise_the_guide_finds_the_exact_posterior():
    """Normal with a normal prior: posterior N(Σy/(n + 1), 1/(n + 1))."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, 1500, 0.001))
    result = fit(plan=exact_plan(1500), optimizer=optimizer)
    exact_mean, exact_sd = Y.sum() / 98, 98**-0.5
    posterior = result.posterior("last")
    assert abs(posterior.params["location"] - exact_mean) < 0.1 * exact_sd
    assert abs(posterior.params["spread"] - exact_sd) < 0.1 * exact_sd
    draws = np.asarray(posterior.sample(4000, jax.random.key(0))["centre"])
    assert abs(draws.mean() - exact_mean) < 5 * exact_sd / np.sqrt(4000) + 0.1 * exact_sd
    assert abs(np.mean(Y) + 1 - exact_mean) > exact_sd  # a prior or a record counted wrongly shows


def test_the_default_posterior_is_the_averaged_one_and_says_so(fitted_mean):
    result = fitted_mean
    posterior = result.posterior()
    assert isinstance(posterior, GuidePosterior)
    assert posterior.method == "average"
    assert "averaged parameters" in repr(posterior)
    assert "do not include the privacy noise" in repr(posterior)
    tail = result.trace.iterates[:, 0]
    assert tail.min() <= posterior.params["location"] <= tail.max()
    assert result.posterior("last").params["location"] == result.trace.final[0]
    assert "centre" in posterior.summary(num_samples=50).names
    assert repr(result).startswith("Result(GuideFamily, 20 steps, parameters: location, spread)")


def test_a_guide_that_had_not_settled_says_so():
    with pytest.warns(ConvergenceWarning, match=r"1 of 2 .* still drifting .* the furthest by about \d+"):
        posterior = fit(data=Y + 30).posterior()
    lines = str(posterior.summary(num_samples=50)).splitlines()
    assert "still drifting" in lines[-2]
    assert lines[-1] == "These intervals leave out the noise that privacy added and what clipping bends."
    assert "still drifting" in repr(posterior)


def test_an_interval_without_width_is_warned_of():
    with pytest.warns(IntervalWarning, match="draws the same value of 'centre' every time, as AutoDelta does"):
        posterior = fit(guide=AutoDelta(mean)).posterior()
    summary = posterior.summary(num_samples=50)
    assert summary.lower == summary.upper
    assert "no width" in str(summary)


@pytest.mark.parametrize("method", ["stationary", "na_dpvi", "score"])
def test_noise_aware_methods_are_refused_with_a_sentence(fitted_mean, method):
    with pytest.raises(ValueError, match=f"method='{method}' needs a Gaussian family, and this run had a guide"):
        fitted_mean.posterior(method)


def test_the_density_of_a_guide_is_refused(fitted_mean):
    with pytest.raises(ValueError, match="density of a guide"):
        fitted_mean.posterior().log_prob(jnp.zeros(1))


def test_local_latents_give_parameters_and_predictions(fitted_vae):
    posterior = fitted_vae.posterior()
    drawn = posterior.predict(vae, jnp.asarray(PIXELS[:3], jnp.float32), num_samples=4)
    assert set(drawn) <= {"x"}
    with jax.numpy_dtype_promotion("standard"):
        predictive = Predictive(vae, guide=vae_guide, params=posterior.params, num_samples=4)
        assert predictive(jax.random.key(0), jnp.asarray(PIXELS[:3], jnp.float32))["x"].shape == (4, 3, PIXELS.shape[1])
    assert list(posterior.sample(3)) == ["shift"]  # codes belong to records
    assert fitted_vae.trace.queries.shape[1] == 1


def test_rows_too_many_to_keep_are_thinned_and_the_posterior_stays(monkeypatch):
    """Without global latents there are no query points, and no moments of them to sum when rows are dropped."""

    def model(y):
        location = numpyro.param("location", 0.0)
        with numpyro.plate("records", y.shape[0]):
            code = numpyro.sample("code", dist.Normal(location, 1.0))
            numpyro.sample("y", dist.Normal(code, 1.0), obs=y)

    def guide(y):
        slope = numpyro.param("slope", 0.5)
        with numpyro.plate("records", y.shape[0]):
            numpyro.sample("code", dist.Normal(slope * y, 0.7))

    whole = fit(model, guide=guide)
    monkeypatch.setattr(recorder, "_MAX_ROW_BYTES", whole.trace.iterates.nbytes)
    thinned = fit(model, guide=guide)
    assert whole.trace.queries.shape[1] == 0
    assert thinned.trace.thinning == 2
    np.testing.assert_array_equal(thinned.trace.iterates, whole.trace.iterates[::2])
    assert thinned.posterior().params == whole.posterior().params


def test_the_weights_of_a_network_are_averaged_over_one_end_of_the_run(fitted_mean, monkeypatch):
    monkeypatch.setattr(guided, "NETWORK", 1)
    params, iterates = fitted_mean.posterior().params, fitted_mean.trace.iterates
    assert fitted_mean.trace.block_length == 1
    np.testing.assert_allclose(params["location"], iterates[-3:, 0].mean(), rtol=1e-6)  # an eighth of 20 steps, or more
    np.testing.assert_allclose(fitted_mean.posterior("last").params["location"], fitted_mean.trace.final[0])
    assert abs(params["location"] - iterates[:, 0].mean()) > 1e-3  # the wrong answer: where it came from counts, too


def test_a_result_reloads_without_data(fitted_vae, tmp_path):
    path = tmp_path / "result.npz"
    fitted_vae.save(path)
    loaded = dpvi.Result.load(path, model=vae, guide=vae_guide)
    expected = fitted_vae.posterior().params
    for name, value in loaded.posterior().params.items():
        np.testing.assert_array_equal(value, expected[name])
    assert loaded.guarantee == fitted_vae.guarantee
    assert isinstance(loaded.family, GuideFamily)
    bare = dpvi.Result.load(path)
    np.testing.assert_array_equal(bare.trace.final, fitted_vae.trace.final)
    with pytest.raises(ValueError, match=r"model=model, guide=guide"):
        bare.posterior()
    with pytest.raises(ValueError, match="pass both"):
        dpvi.Result.load(path, guide=vae_guide)
    with pytest.raises(ValueError, match="but the guide has"):
        dpvi.Result.load(path, model=vae, guide=AutoNormalWithDecoder())


class AutoNormalWithDecoder:
    """The guide of the model with one more parameter."""

    def __call__(self, x):
        import numpyro

        numpyro.param("another", 0.0)
        vae_guide(x)


def test_a_guide_for_a_result_without_one_is_refused(tmp_path):
    path = tmp_path / "plain.npz"
    dpvi.fit(mean, Y, PLAN, seed=1, progress=False).save(path)
    with pytest.raises(ValueError, match="not with a guide"):
        dpvi.Result.load(path, model=mean, guide=mean_guide)


def test_an_autoguide_reloads_without_data(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 2)).astype("float32")
    result = fit(logistic, (x, (x[:, 0] > 0).astype(int)), guide=AutoMultivariateNormal(logistic))
    result.save(tmp_path / "result.npz")
    guide = AutoMultivariateNormal(logistic)
    posterior = dpvi.Result.load(tmp_path / "result.npz", model=logistic, guide=guide).posterior("last")
    with jax.numpy_dtype_promotion("standard"):
        draws = guide.sample_posterior(jax.random.key(0), posterior.params, sample_shape=(6,))
    assert draws["w"].shape == (6, 2)


def test_the_number_of_records_is_in_no_part_of_a_result(fitted_mean, tmp_path):
    result = fitted_mean
    arrays = jax.tree.leaves([part for part in result.trace if part is not None])
    assert all(97 not in np.shape(array) for array in arrays)
    assert all(not np.any(np.asarray(array, float) == 97) for array in arrays)
    path = tmp_path / "result.npz"
    result.save(path)
    with np.load(path) as stored:
        assert "97" not in bytes(stored["header"]).decode().replace(str(result.guarantee), "")


@pytest.mark.parametrize(
    ("method", "options"), [(None, {"slope": 0.1}), ("average", {"engine": "nuts"}), ("last", {"slope_threshold": 0.1})]
)
def test_options_that_a_method_does_not_have_are_refused(fitted_mean, method, options):
    with pytest.raises(TypeError, match=rf"^posterior\('{method or 'average'}'\) does not take these options: .*\.$"):
        fitted_mean.posterior(method, **options)


def test_a_result_without_its_guide_says_so_when_python_drops_assertions(fitted_mean):
    optimised: dict = {"__name__": "guided_without_assertions"}
    source = Path(guided.__file__).read_text(encoding="utf-8")
    exec(compile(source, "guided", "exec", optimize=1), optimised)
    family = dataclasses.replace(fitted_mean.family, program=None)
    with pytest.raises(ValueError, match=r"Result\.load\(path, model=model, guide=guide\)"):
        optimised["guided_posterior"](
            fitted_mean.trace, family, fitted_mean.guarantee, "average", {}, sampling_rate=0.5
        )


def test_the_start_can_be_given():
    result = fit(initial_location={"location": 1.5})
    assert result.trace.iterates[0, 0] == 1.5
    with pytest.raises(ValueError, match="dict of parameters"):
        fit(initial_location=[0.0, 1.0])


def test_several_draws_a_step_and_their_description():
    result = fit(estimator=Guided(num_draws=3))
    assert result.estimator == {"name": "Guided", "num_draws": 3, "closed_form": True}
    assert dpvi.Guided is Guided
    assert result.trace.queries.shape == (20, 3)


def test_what_a_guide_replaces_cannot_be_given_beside_it():
    for options in ({"family": dpvi.FullRank()}, {"estimator": dpvi.Vanilla()}):
        with pytest.raises(ValueError, match="takes the place of family, estimator"):
            fit(**options)
    with pytest.raises(TypeError, match="NumPyro guide, a function"):
        fit(guide=3)


@pytest.mark.parametrize("options", [{}, {"estimator": dpvi.Aligned()}, {"estimator": Guided()}])
def test_a_driver_beside_a_guide_is_refused(options):
    """A guide's release reads no query point, so steps would be spent on measurements that were none."""
    with pytest.raises(ValueError, match=r"A driver measures scores .* a guide does not have"):
        fit(driver=lambda released: dpvi.Directive(5, np.zeros(1)), **options)


def test_a_plan_that_measures_moves_all_the_way_and_says_so():
    plan = dpvi.plan(epsilon=1.0, delta=1e-5, sampling_rate=0.5, num_steps=100, clip_norm=1.0, num_records=97)
    assert plan.schedule is not None
    with pytest.warns(FallbackWarning, match="a guide does not have"):
        result = fit(plan=plan)
    assert result.trace.segments is None


def test_an_autoguide_can_be_used_for_one_fit_after_another():
    guide = AutoNormal(mean)
    first, second = (fit(guide=guide).trace.final for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_batch_that_does_not_fit_in_memory_says_what_to_do_and_no_size(monkeypatch):
    def exhausted(*_, **__):
        return jax.jit(lambda: jnp.ones(2**44, jnp.float32))().block_until_ready()  # 64 TiB: the device's own error

    with pytest.raises(jax.errors.JaxRuntimeError, match=str(2**46)):
        exhausted()
    monkeypatch.setattr(Run, "__call__", exhausted)
    with pytest.raises(MemoryError, match="microbatch_size") as caught:
        fit()
    assert "sampling_rate" in str(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(MemoryError, match="smaller group_size"):
        dpvi.fit_many(mean, Y[None], PLAN, guide=mean_guide, progress=False)


def test_other_errors_of_the_device_are_passed_on_without_their_numbers():
    def broken():
        raise jax.errors.JaxRuntimeError("INTERNAL: broken at f32[97,3]")

    with pytest.raises(jax.errors.JaxRuntimeError, match=r"INTERNAL: broken at f#\[#,#\]") as caught:
        run_within_memory("do nothing", broken)
    assert caught.value.__context__ is None


def test_a_guide_that_misses_a_site_and_a_local_latent_without_a_guide_are_refused_with_a_remedy():
    def empty_guide(y):
        numpyro.param("location", 0.0)

    with pytest.raises(dpvi.ModelError, match=r"misses 'centre'; add it"):
        fit(guide=empty_guide)
    with pytest.raises(dpvi.ModelError, match=r"pass guide=dpvi.AutoAmortised\(model\), or one of your own"):
        dpvi.fit(vae, PIXELS, PLAN, progress=False)


def test_several_data_sets_side_by_side_equal_single_runs_with_their_seeds(fitted_mean):
    stacked = np.stack([Y, Y[::-1] + 1.0])
    first, second = dpvi.fit_many(mean, stacked, PLAN, guide=mean_guide, seeds=[1, 2], progress=False)
    np.testing.assert_allclose(first.trace.iterates, fitted_mean.trace.iterates, rtol=1e-4, atol=1e-5)
    assert np.abs(second.trace.final - first.trace.final).max() > 1e-3
    assert isinstance(first.posterior(), GuidePosterior)
    with pytest.raises(ValueError, match="takes the place of family"):
        dpvi.fit_many(mean, stacked, PLAN, guide=mean_guide, family=dpvi.FullRank(), progress=False)
