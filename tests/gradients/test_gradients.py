"""Estimators: without clip and noise each is the gradient of the ELBO; pairs that do not exist say so."""

from __future__ import annotations

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.statistics import assert_close, assert_variance, tolerance, variance_with_error
from support.units import unit

from dpvi.families import FullRank, LowRank, MeanField
from dpvi.gradients import Aligned, AlignedNatural, Natural, Preconditioned, Vanilla
from dpvi.mechanism.bounded_sum import bounded_sum
from dpvi.models.functions import from_functions

DIMENSION, NUM_RECORDS = 4, 9


def log_prior(params):
    return -0.5 * jnp.sum(params["w"] ** 2) - jnp.logaddexp(0.0, params["log_sd"] ** 2)


def log_likelihood(params, record):
    """Nothing is conjugate: a saturating mean and a scale that is inferred too."""
    error = (record["y"] - jnp.tanh(record["x"] @ params["w"])) * jnp.exp(-params["log_sd"])
    return -jnp.log1p(error**2) - params["log_sd"]


MODEL = from_functions(log_prior, log_likelihood, {"w": (DIMENSION - 1,), "log_sd": ()})


def data(dtype: str = "float64") -> dict[str, jax.Array]:
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((NUM_RECORDS, DIMENSION - 1)), generator.standard_normal(NUM_RECORDS)
    return {"x": jnp.asarray(x.astype(dtype)), "y": jnp.asarray(y.astype(dtype))}


def point(family, num_draws: int, dtype: str = "float64") -> tuple[jax.Array, jax.Array]:
    """ξ away from any start, and η."""
    generator = np.random.default_rng(1)
    xi = 0.5 * generator.standard_normal(family.num_parameters(DIMENSION))
    eta = generator.standard_normal((num_draws, family.num_base(DIMENSION)))
    return jnp.asarray(xi.astype(dtype)), jnp.asarray(eta.astype(dtype))


def elbo(xi, eta, family, records, sampling_rate):
    """The ELBO at fixed η, from its definition; the likelihood of a batch counts 1/κ."""

    def log_joint(z):
        likelihood = jnp.sum(jax.vmap(MODEL.log_likelihood, (None, 0))(z, records))
        return likelihood / sampling_rate + MODEL.log_prior(z)

    z = jnp.stack([family.transform(xi, each) for each in eta])
    return jnp.mean(jax.vmap(log_joint)(z)) + family.entropy(xi)


@cache
def autodiff_gradient(family, num_draws: int, sampling_rate: float) -> np.ndarray:
    xi, eta = point(family, num_draws)
    return np.asarray(jax.jit(jax.grad(elbo), static_argnums=2)(xi, eta, family, data(), sampling_rate))


def noiseless_gradient(estimator, family, xi, eta, records, sampling_rate, clip_norm=float("inf")):
    """Release, sum, reconstruct: the path of a step."""
    queries = jax.vmap(family.transform, (None, 0))(xi, eta)
    releases = jax.vmap(lambda record: estimator.release(MODEL, family, xi, eta, queries, record))(records)
    assert releases.shape == (NUM_RECORDS, estimator.release_size(family, DIMENSION))
    total = bounded_sum(releases, jnp.ones(NUM_RECORDS, bool), clip_norm).total  # float64 where nothing is clipped
    total = total.astype(xi.dtype) * (1.0 if np.isinf(clip_norm) else float(unit(clip_norm)))
    return estimator.reconstruct(MODEL, family, xi, eta, total, sampling_rate)


FAMILIES = [MeanField(), MeanField("exp"), FullRank(), LowRank(2, "exp")]
EVERY_FAMILY = (Vanilla, Aligned)
MEAN_FIELD_ONLY = (Natural, AlignedNatural, Preconditioned)


def fixed_beta(family):
    """A fixed preconditioner, public and uneven."""
    beta = tuple(0.5 + 0.25 * i for i in range(family.num_parameters(DIMENSION)))
    return partial(Preconditioned, beta)


def pairs():
    for family in FAMILIES:
        makers = [*EVERY_FAMILY, *(MEAN_FIELD_ONLY if isinstance(family, MeanField) else ())]
        for maker in makers:
            yield pytest.param(maker, family, id=f"{maker.__name__}-{type(family).__name__}-{family.scale}")
        yield pytest.param(
            fixed_beta(family), family, id=f"Preconditioned(beta)-{type(family).__name__}-{family.scale}"
        )


@pytest.mark.parametrize("num_draws", [1, 3])
@pytest.mark.parametrize(("maker", "family"), list(pairs()))
def test_without_clip_and_noise_every_estimator_is_the_gradient_of_the_elbo(x64, maker, family, num_draws):
    estimator = maker(num_draws=num_draws)
    estimator.check(family)
    xi, eta = point(family, num_draws)
    gradient = jax.jit(partial(noiseless_gradient, estimator, family))
    for sampling_rate in (1.0, 0.5):
        found = gradient(xi, eta, data(), sampling_rate)
        expected = autodiff_gradient(family, num_draws, sampling_rate)
        if isinstance(
            estimator, (Natural, AlignedNatural)
        ):  # inverse_fisher is held against the Fisher matrix elsewhere
            expected = np.asarray(family.inverse_fisher(xi)) * expected
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-11)


def test_the_table_tells_a_wrong_estimator(x64):
    """The named wrong answers: dividing by the realised batch, and forgetting the prior."""
    family = MeanField()
    xi, eta = point(family, 1)

    @jax.jit
    def answers(xi):
        queries = jax.vmap(family.transform, (None, 0))(xi, eta)
        releases = jax.vmap(lambda record: Vanilla().release(MODEL, family, xi, eta, queries, record))(data())
        mean = Vanilla().reconstruct(MODEL, family, xi, eta, jnp.mean(releases, axis=0), 0.5)
        likelihood_only = jnp.sum(releases, axis=0) / 0.5 + jax.grad(family.entropy)(xi)
        return jax.grad(elbo)(xi, eta, family, data(), 0.5), mean, likelihood_only

    expected, mean, likelihood_only = (np.asarray(answer) for answer in answers(xi))
    for wrong in (mean, likelihood_only):
        assert np.max(np.abs(wrong - expected)) > 1e-2


@pytest.mark.parametrize(("maker", "family"), list(pairs()))
def test_float32_stays_float32(maker, family):
    estimator = maker(num_draws=2)
    xi, eta = point(family, 2, "float32")
    gradient = jax.eval_shape(
        lambda records: noiseless_gradient(estimator, family, xi, eta, records, 0.1, 2.0), data("float32")
    )
    assert gradient.dtype == jnp.float32
    assert gradient.shape == xi.shape


@pytest.mark.parametrize("estimator", [Aligned, AlignedNatural])
def test_several_draws_are_released_as_one_stacked_vector(x64, estimator):
    family = MeanField()
    assert estimator(3).release_size(family, DIMENSION) == 3 * DIMENSION
    xi, eta = point(family, 3)
    queries = jax.vmap(family.transform, (None, 0))(xi, eta)
    record = jax.tree.map(lambda leaf: leaf[0], data())

    @jax.jit
    def release(eta, queries):
        return estimator(len(eta)).release(MODEL, family, xi, eta, queries, record)

    stacked = release(eta, queries)
    for k in range(3):
        alone = release(eta[k : k + 1], queries[k : k + 1])
        np.testing.assert_allclose(
            np.asarray(stacked)[k * DIMENSION : (k + 1) * DIMENSION], np.asarray(alone), rtol=1e-12
        )


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_aligned_releases_no_more_than_the_parameters_whatever_the_family(family):
    assert Aligned().release_size(family, DIMENSION) == DIMENSION
    assert Vanilla().release_size(family, DIMENSION) == family.num_parameters(DIMENSION)


@pytest.mark.parametrize("family", [FullRank(), LowRank(2)], ids=["FullRank", "LowRank"])
@pytest.mark.parametrize("estimator", [Natural(), AlignedNatural(), Preconditioned()], ids=lambda e: type(e).__name__)
def test_pairs_that_do_not_exist_are_refused_with_a_remedy(family, estimator):
    with pytest.raises(ValueError) as refusal:
        estimator.check(family)
    sentence = str(refusal.value)
    assert sentence.startswith(f"{type(estimator).__name__}()")
    assert f"MeanField only, not {type(family).__name__}." in sentence
    assert "Aligned(), which works for every family." in sentence
    if isinstance(estimator, Preconditioned):
        assert "Pass a fixed beta" in sentence


@pytest.mark.parametrize("family", [MeanField(), FullRank(), LowRank(2)], ids=repr)
def test_a_fixed_beta_needs_one_number_per_parameter(family):
    size = family.num_parameters(DIMENSION)
    Preconditioned((1.0,)).check(family)
    for length in (1, size - 1, size + 1):
        with pytest.raises(ValueError, match=f"one number per variational parameter: expected {size}, got {length}"):
            Preconditioned((1.0,) * length).release_size(family, DIMENSION)
    assert Preconditioned(np.ones(size)).release_size(family, DIMENSION) == size


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_beta_that_is_not_positive_and_finite_is_refused(value):
    with pytest.raises(ValueError, match="finite positive numbers"):
        Preconditioned((1.0, value))


@pytest.mark.parametrize("num_draws", [0, -1, 1.5, True, "2"])
@pytest.mark.parametrize("estimator", [Vanilla, Aligned, Natural, AlignedNatural, Preconditioned])
def test_bad_numbers_of_draws_are_refused(estimator, num_draws):
    with pytest.raises(ValueError, match="num_draws must be a whole number of at least 1"):
        estimator(num_draws=num_draws)


# --- Theorem 3.1 of DPVIm: the aligned scale gradient has the smaller variance ---------------------------------------

NUM_DRAWS, CLIP_NORM, NOISE = 40_000, 30.0, 0.5
UNIT = float(unit(CLIP_NORM))
LOGISTIC = from_functions(  # scores no longer than the record
    lambda w: -0.5 * jnp.sum(w**2), lambda w, record: -jnp.logaddexp(0.0, -record["y"] * (record["x"] @ w)), DIMENSION
)


def noisy_scale_gradients(estimator, family, xi, seed: int) -> np.ndarray:
    """The scale gradient of one fixed batch over many draws of (η, ψ), (draws, d); no record reaches the clip norm."""
    generator = np.random.default_rng(0)
    records = {
        "x": jnp.asarray(generator.standard_normal((NUM_RECORDS, DIMENSION))),
        "y": jnp.asarray(generator.choice([-1.0, 1.0], NUM_RECORDS)),
    }

    def one(eta, noise):
        queries = jax.vmap(family.transform, (None, 0))(xi, eta)
        releases = jax.vmap(lambda record: estimator.release(LOGISTIC, family, xi, eta, queries, record))(records)
        total = bounded_sum(releases, jnp.ones(NUM_RECORDS, bool), CLIP_NORM).total.astype(xi.dtype) * UNIT
        gradient = estimator.reconstruct(LOGISTIC, family, xi, eta, total + NOISE * CLIP_NORM * noise, 1.0)
        return gradient[DIMENSION:], jnp.max(jnp.linalg.norm(releases, axis=1))

    generator = np.random.default_rng(seed)
    eta = generator.standard_normal((NUM_DRAWS, 1, DIMENSION))
    noise = generator.standard_normal((NUM_DRAWS, estimator.release_size(family, DIMENSION)))
    gradients, largest = jax.jit(jax.vmap(one))(jnp.asarray(eta), jnp.asarray(noise))
    assert float(jnp.max(largest)) < 0.99 * CLIP_NORM  # so that clipping treats both releases alike
    return np.asarray(gradients)


def scale_gradients(scale: str, s) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vanilla and aligned draws with independent seeds, and T'(s)."""
    family = MeanField(scale)
    xi = jnp.concatenate([jnp.array([0.3, -0.2, 0.1, 0.0]), jnp.asarray(s)])
    vanilla = noisy_scale_gradients(Vanilla(), family, xi, seed=1)
    aligned = noisy_scale_gradients(Aligned(), family, xi, seed=2)
    return vanilla, aligned, np.asarray(family.scale_derivatives(xi))


def variance_gain(vanilla: np.ndarray, aligned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    (larger, larger_error), (smaller, smaller_error) = variance_with_error(vanilla), variance_with_error(aligned)
    return larger - smaller, np.hypot(larger_error, smaller_error)


def test_the_aligned_scale_gradient_has_the_smaller_variance(x64):
    """Theorem 3.1: Var(vanilla) − Var(aligned) = σ²C²(1 − T'(s)²) > 0 for softplus, in every coordinate."""
    vanilla, aligned, derivative = scale_gradients("softplus", [-3.0, -1.0, 0.0, 1.0])
    gain, error = variance_gain(vanilla, aligned)
    noise_variance = (NOISE * CLIP_NORM) ** 2
    assert np.all(gain > tolerance(DIMENSION) * error)
    assert_close(gain, noise_variance * (1 - derivative**2), error)
    # the same mean: what is gained is not bought with bias
    mean_error = np.sqrt((vanilla.var(axis=0) + aligned.var(axis=0)) / NUM_DRAWS)
    assert_close(vanilla.mean(axis=0), aligned.mean(axis=0), mean_error)
    # the named wrong answers: no gain at all, and T' in place of its square
    for wrong in (np.zeros(DIMENSION), noise_variance * (1 - derivative)):
        with pytest.raises(AssertionError):
            assert_close(gain, wrong, error)


def test_the_theorem_needs_a_scale_map_that_does_not_stretch(x64):
    """Under exp with s > 0 T' exceeds 1 and the inequality turns round; the formula still holds."""
    vanilla, aligned, derivative = scale_gradients("exp", [-1.5, -0.5, 0.4, 0.6])
    gain, error = variance_gain(vanilla, aligned)
    assert_close(gain, (NOISE * CLIP_NORM) ** 2 * (1 - derivative**2), error)
    certain = tolerance(DIMENSION) * error
    assert np.all(gain[:2] > certain[:2])
    assert np.all(gain[2:] < -certain[2:])


def test_the_noise_of_a_vanilla_scale_gradient_is_that_of_the_mechanism(x64):
    """The larger side of the theorem by itself: the spread at fixed η is σC, and half of it is caught."""
    family = MeanField()
    xi, eta = point(family, 1)
    noise = NOISE * CLIP_NORM * jax.random.normal(jax.random.key(3), (NUM_DRAWS, 2 * DIMENSION))
    gradients = jax.vmap(lambda psi: Vanilla().reconstruct(MODEL, family, xi, eta, psi, 1.0))(noise)
    spread = np.full(2 * DIMENSION, (NOISE * CLIP_NORM) ** 2)
    assert_variance(np.asarray(gradients), spread)
    with pytest.raises(AssertionError):
        assert_variance(0.5 * np.asarray(gradients), spread)
