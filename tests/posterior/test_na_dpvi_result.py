"""NA-DPVI as a user meets it: ``result.posterior("na_dpvi")``, its mixtures, its refusals, a run from end to end."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.distributions import constraints
from support.small_models import block_sums, exact_plan, private_plan, trace_of
from support.statistics import assert_close

import dpvi
from dpvi.declared.guarantee import Circumstances
from dpvi.families import FullRank, LowRank, MeanField
from dpvi.models.sites import layout
from dpvi.posterior import Result
from dpvi.posterior.na_dpvi import FamilyMixture, MeanFieldMixture, dense_model_of_run, model_of_run, quadrature
from dpvi.posterior.na_dpvi.mixture import mixture_of
from dpvi.run.optimizers import na_dpvi_sgd

D = 2
SITES = layout([("w", (D,), (D,), constraints.real_vector)])
BETA = [1.0, 1.0, 20.0, 20.0]


def make_result(family=MeanField(), estimator=None, plan=None, num_steps=400) -> Result:
    """A result without a run: iterates around a known point and gradients that pull them back."""
    random, size = np.random.default_rng(4), family.num_parameters(D)
    iterates = (np.linspace(-1, 1, size) + random.normal(0, 0.1, (num_steps, size))).astype(np.float32)
    gradients = 50.0 * (iterates - np.linspace(-1, 1, size)) + random.normal(size=iterates.shape)
    blocks = block_sums(iterates, gradients, 4, np.ones(num_steps, bool))
    plan = private_plan(num_steps) if plan is None else plan
    return Result(
        plan=plan,
        circumstances=Circumstances("none"),
        trace=trace_of(iterates, 4)._replace(blocks=blocks),
        family=family,
        estimator={"name": "Vanilla", "num_draws": 1} if estimator is None else estimator,
        sites=SITES,
        structure=jax.ShapeDtypeStruct((D,), jnp.dtype("float32")),
    )


# The model of a run


def test_the_noise_of_a_run_is_its_plans_divided_by_beta():
    plan = private_plan(400, sampling_rate=0.25, noise_multiplier=3.0, clip_norm=2.0)
    estimator = {"name": "Preconditioned", "beta": BETA, "num_draws": 10}  # averaged draws change no noise
    result = make_result(estimator=estimator, plan=plan)
    model = model_of_run(result.trace, result.family, plan, estimator, location_prior_scale=10.0, scale_prior_scale=0.5)
    np.testing.assert_allclose(model.noise_scale, 6.0 / np.array(BETA))
    np.testing.assert_array_equal(model.prior_scale, [10.0, 10.0, 0.5, 0.5])
    assert model.sampling_rate == 0.25
    assert model.statistics.num_steps == 320


@pytest.mark.parametrize("engine", ["exact", "laplace", "nuts"])
@pytest.mark.parametrize("subsampling_variance", [False, True])
def test_engines_agree_on_a_posterior(engine, subsampling_variance):
    result = make_result()
    options = {"num_warmup": 300} if engine == "nuts" else {}
    mixture = result.posterior(
        "na_dpvi", engine=engine, subsampling_variance=subsampling_variance, num_draws=2000, **options
    ).distribution
    model = model_of_run(
        result.trace, result.family, result.plan, result.estimator, subsampling_variance=subsampling_variance
    )
    exact = quadrature(model)
    assert mixture.locations.shape == (2000, D)
    assert mixture.locations.dtype == np.float32
    error = exact.standard_deviation[:D]
    assert_close(mixture.locations.mean(axis=0), exact.mean[:D], error / np.sqrt(500))
    assert_close(mixture.locations.std(axis=0), error, error / np.sqrt(2 * 500))


def test_a_posterior_can_be_computed_again_and_with_another_key():
    result = make_result()
    one, same = (result.posterior("na_dpvi", num_draws=100).distribution.locations for _ in range(2))
    np.testing.assert_array_equal(one, same)
    other = result.posterior("na_dpvi", num_draws=100, key=jax.random.key(9)).distribution.locations
    assert not np.any(other == one)


# Mixtures


def test_a_mean_field_mixture_mixes_each_coordinate():
    random = np.random.default_rng(0)
    locations, scales = random.normal(size=(7, D)), random.uniform(0.2, 1.0, (7, D))
    mixture = MeanFieldMixture(locations.astype(np.float32), scales.astype(np.float32))
    z = np.array([0.3, -0.4])
    marginals = np.log(scipy.stats.norm.pdf(z, locations, scales).mean(axis=0))
    np.testing.assert_allclose(mixture.marginal_log_prob(jnp.asarray(z, jnp.float32)), marginals, rtol=1e-5)
    np.testing.assert_allclose(mixture.log_prob(jnp.asarray(z, jnp.float32)), marginals.sum(), rtol=1e-5)
    draws = np.asarray(mixture.sample(jax.random.key(1), 20_000), np.float64)
    assert_close(draws.mean(axis=0), mixture.mean, mixture.standard_deviations / np.sqrt(20_000))
    assert_close(draws.std(axis=0), mixture.standard_deviations, mixture.standard_deviations / np.sqrt(20_000))
    assert abs(np.corrcoef(draws.T)[0, 1]) < 5 / np.sqrt(20_000)


@pytest.mark.parametrize("family", [FullRank(), LowRank(1)], ids=repr)
def test_a_mixture_of_dependent_families_mixes_whole_members(family):
    components = np.random.default_rng(0).normal(size=(5, family.num_parameters(D))).astype(np.float32)
    mixture = mixture_of(family, components)
    assert isinstance(mixture, FamilyMixture)
    z = jnp.array([0.3, -0.4])
    parts = [float(family.log_prob(jnp.asarray(xi), z)) for xi in components]
    np.testing.assert_allclose(mixture.log_prob(z), scipy.special.logsumexp(parts) - np.log(5), rtol=1e-5)
    means = np.array([family.location(jnp.asarray(xi)) for xi in components], np.float64)
    covariance = np.mean([family.covariance(jnp.asarray(xi)) for xi in components], axis=0) + np.cov(means.T, ddof=0)
    draws = np.asarray(mixture.sample(jax.random.key(1), 20_000), np.float64)
    assert_close(draws.mean(axis=0), means.mean(axis=0), np.sqrt(np.diag(covariance) / 20_000))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.08 * np.max(np.abs(covariance)))
    scales = np.sqrt([family.variances(jnp.asarray(xi)) for xi in components])
    expected = np.log(scipy.stats.norm.pdf(np.asarray(z), means, scales).mean(axis=0))
    np.testing.assert_allclose(mixture.marginal_log_prob(z), expected, rtol=1e-4)


@pytest.mark.parametrize("family", [MeanField(), MeanField(scale="exp"), FullRank(), LowRank(1)], ids=repr)
def test_every_family_has_a_posterior(family):
    posterior = make_result(family).posterior("na_dpvi", num_draws=200)
    assert posterior.sample(5)["w"].shape == (5, D)
    assert np.all(np.isfinite(posterior.log_prob(np.zeros((3, D), np.float32))))


# Refusals


@pytest.mark.parametrize(
    ("estimator", "sentence"),
    [
        ({"name": "Aligned", "num_draws": 1}, "Aligned does not release such gradients"),
        ({"name": "Natural", "num_draws": 1}, "Natural does not release such gradients"),
        ({"name": "AlignedNatural", "num_draws": 1}, "AlignedNatural does not release such gradients"),
        ({"name": "Preconditioned", "beta": None, "num_draws": 1}, r"Fit with Preconditioned\(beta=...\)"),
        ({"name": "Preconditioned", "beta": [1.0, 2.0], "num_draws": 1}, "beta has 2 entries, but the trace has 4"),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_runs_the_model_does_not_describe_are_refused(estimator, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_result(estimator=estimator).posterior("na_dpvi")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "adam"}, "engine must be one of 'exact', 'nuts', 'laplace'"),
        ({"burn_in": 1.0}, r"burn_in must lie in \[0, 1\)"),
        ({"burn_in": -0.1}, r"burn_in must lie in \[0, 1\)"),
        ({"burn_in": 0.999}, "Run more steps or shorten the burn-in"),
        ({"location_prior_scale": 0.0}, "location_prior_scale must be finite and greater than 0"),
        ({"scale_prior_scale": np.inf}, "scale_prior_scale must be finite and greater than 0"),
        ({"num_draws": 0}, "num_draws must be a whole number"),
        ({"engine": "nuts", "num_warmup": 1.5}, "num_warmup must be a whole number"),
    ],
    ids=str,
)
def test_bad_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_result(num_steps=200).posterior("na_dpvi", **options)


def test_a_run_without_noise_is_refused():
    with pytest.raises(ValueError, match="this plan adds none"):
        make_result(plan=exact_plan(400)).posterior("na_dpvi")


# From end to end


def beta_bernoulli(x=None):
    p = numpyro.sample("p", dist.Beta(10.0, 10.0))
    with numpyro.plate("records", 1 if x is None else x.shape[0]):
        numpyro.sample("x", dist.Bernoulli(probs=p), obs=x)


@pytest.fixture(scope="module")
def fitted():
    """The paper's model and clip norm on fewer records. β_u = 120 would have most gradients clipped, a bias no model of
    noise can undo: with 1000 records q is twice as wide as with the paper's 5000."""
    num_records = 1000
    x = (np.arange(num_records) < 300).astype(np.int32)
    plan = private_plan(4000, sampling_rate=0.1, noise_multiplier=20.0, clip_norm=2.0)
    plan = dataclasses.replace(plan, epsilon=1.3)  # what these settings spend, rounded up
    family, beta = MeanField(initial_scale=0.07), (1.0, 30.0)
    result = dpvi.fit(
        beta_bernoulli,
        x,
        plan,
        family=family,
        estimator=dpvi.Preconditioned(beta=beta, num_draws=10),
        optimizer=na_dpvi_sgd(plan, family, 1, beta=beta),
        seed=3,
        progress=False,
    )
    return result, scipy.stats.beta(10 + 300, 10 + 700)


def test_gradients_of_a_real_run_are_what_the_model_says(fitted):
    """Residual variance is the privacy noise, curvature of the location is the inverse variance of q."""
    result, exact = fitted
    model = model_of_run(result.trace, result.family, result.plan, result.estimator)
    statistics = model.statistics
    found = np.sqrt(statistics.residual / statistics.num_steps)
    assert_close(found, model.noise_scale, found / np.sqrt(2 * statistics.num_steps))
    with pytest.raises(AssertionError, match="standard errors"):  # as it would be if noise were divided by √β
        assert_close(found, result.plan.noise_scale / np.sqrt([1.0, 30.0]), found / np.sqrt(2 * statistics.num_steps))
    curvature = 1020 * exact.mean() * (1 - exact.mean())  # of the log density in the logit of p
    assert abs(model.curvature_mean[0] - curvature) < 4 * model.curvature_scale[0]


def test_a_real_run_gives_a_posterior_around_the_exact_one(fitted):
    result, exact = fitted
    row = result.posterior("na_dpvi").summary().to_dict()["p"]
    assert abs(row["mean"] - exact.mean()) < 3 * row["sd"]
    assert 0.7 * exact.std() < row["sd"] < 3 * exact.std()
    assert row["lower"] < exact.mean() < row["upper"]
    for engine in ("nuts", "laplace"):
        other = result.posterior("na_dpvi", engine=engine, num_draws=2000).summary().to_dict()["p"]
        np.testing.assert_allclose(other["mean"], row["mean"], atol=0.4 * row["sd"])


def test_a_real_run_keeps_what_a_dense_curvature_needs(fitted):
    """The diagonal of a dense least-squares fit is what the diagonal model sees, up to what the parameters share."""
    result, _ = fitted
    arguments = (result.trace, result.family, result.plan, result.estimator)
    dense, diagonal = dense_model_of_run(*arguments).statistics, model_of_run(*arguments).statistics
    np.testing.assert_allclose(np.diagonal(dense.phi_spread), diagonal.phi_spread, rtol=1e-9)
    np.testing.assert_allclose(np.diagonal(dense.gradient_phi), diagonal.slope * diagonal.phi_spread, rtol=1e-9)
    np.testing.assert_allclose(dense.gradient_mean, diagonal.gradient_mean, rtol=1e-9)
    row = result.posterior("na_dpvi", curvature="dense").summary().to_dict()["p"]
    other = result.posterior("na_dpvi").summary().to_dict()["p"]
    np.testing.assert_allclose(row["mean"], other["mean"], atol=0.5 * other["sd"])
    np.testing.assert_allclose(row["sd"], other["sd"], rtol=0.5)


def test_a_loaded_result_has_the_same_noise_aware_posterior(fitted, tmp_path):
    result, _ = fitted
    result.save(tmp_path / "result.dpvi")
    loaded = Result.load(tmp_path / "result.dpvi")
    assert str(loaded.posterior("na_dpvi").summary()) == str(result.posterior("na_dpvi").summary())
    assert loaded.posterior("na_dpvi").guarantee == result.guarantee
    dense = {"curvature": "dense", "num_draws": 500}
    assert str(loaded.posterior("na_dpvi", **dense).summary()) == str(result.posterior("na_dpvi", **dense).summary())
    aligned = dataclasses.replace(loaded, estimator={"name": "Aligned", "num_draws": 1})
    with pytest.raises(ValueError, match="does not release such gradients"):
        aligned.posterior("na_dpvi")
