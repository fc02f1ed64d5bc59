"""Noise-aware linear regression from noisy sums of products (Bernstein and Sheldon, 2019): three Gibbs samplers.

With z = s + e the noisy sums, ω the variances of the noise and E[t], Cov[t] the moments of a record's products
(:mod:`.moments`), a sweep draws

    s | θ, σ², ω, z ∝ N(s; N E[t], N Cov[t]) N(z; s, diag ω),
    θ, σ² | s       conjugate, normal-inverse-gamma,
    ω | s, z        see :mod:`.noise`; known where the noise is Gaussian.

The samplers differ in where the covariates' moments come from: a noisy release of its own (Gibbs-SS-Noisy), the
prior (Gibbs-SS-Prior), or a normal law resampled in every sweep (Gibbs-SS-Update).

As published, one sweep moves θ by about σ/√N, the width of θ | s. Where privacy noise leaves a posterior much wider
than that, the chain would need (width · √N/σ)² sweeps to cross it. A sweep therefore begins with an elliptical slice
step for θ (and the mean of learned covariates) with s integrated out, z ~ N(N E[t], N Cov[t] + diag ω): it leaves the
same posterior invariant, because s is drawn anew right after it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from studies.baselines.bernstein_sheldon.chain import run_chains
from studies.baselines.bernstein_sheldon.covariates import (
    CovariateModel,
    CovariateState,
    FixedCovariates,
    NormalInverseWishart,
)
from studies.baselines.bernstein_sheldon.elliptical_slice import elliptical_slice
from studies.baselines.bernstein_sheldon.moments import (
    CovariateMoments,
    draw_sums,
    noisy_moments,
    pair_indices,
    record_moments,
)
from studies.baselines.bernstein_sheldon.noise import NoisyRegression


class NormalInverseGamma(NamedTuple):
    """θ | σ² ~ N(``mean``, σ² ``precision``⁻¹), σ² ~ InverseGamma(``shape``, ``scale``); the constant's weight last."""

    mean: jax.Array | np.ndarray  # (d,)
    precision: jax.Array | np.ndarray  # (d, d)
    shape: jax.Array | float
    scale: jax.Array | float


class RegressionDraws(NamedTuple):
    """Draws of θ, (…, num_draws, d), and of σ², (…, num_draws)."""

    weights: np.ndarray
    variance: np.ndarray


def gibbs_ss_noisy(
    release: NoisyRegression,
    prior: NormalInverseGamma,
    key: jax.Array,
    *,
    num_burn_in: int = 2000,
    num_draws: int = 5000,
) -> RegressionDraws:
    """Draws with the covariates' moments from the release itself, taken as if they had no noise.

    The release must hold fourth moments (``release_regression(..., fourth_moments=True)``). Their noise is not
    modelled: where it is not small beside the moments, intervals do not cover. With ten covariates there are 1,000 of
    them. Other arguments and the result are those of :func:`gibbs_ss_prior`.
    """
    if release.fourth_moments is None:
        raise ValueError(
            "Gibbs-SS-Noisy needs the covariates' fourth moments, which this release does not hold. Make it with "
            "release_regression(..., fourth_moments=True), or use gibbs_ss_prior or gibbs_ss_update."
        )
    moments = noisy_moments(np.asarray(release.fourth_moments), np.shape(prior.mean)[-1])
    arguments = (release._replace(fourth_moments=None), FixedCovariates(moments))
    return _sample(arguments, (prior,), release, prior, key, num_burn_in, num_draws)


def gibbs_ss_prior(
    release: NoisyRegression,
    prior: NormalInverseGamma,
    covariates: CovariateMoments,
    key: jax.Array,
    *,
    num_burn_in: int = 2000,
    num_draws: int = 5000,
) -> RegressionDraws:
    """Draws with covariates whose moments are known beforehand.

    Parameters
    ----------
    release
        One release, or several of equal shape from :func:`stack_releases`.
    prior
        Of the weights and the residual variance.
    covariates
        From :func:`known_covariates`. The sampler takes them as the moments that all N records share.
    key
        A PRNG key. It decides nothing that privacy rests on.
    num_burn_in, num_draws
        Sweeps that are dropped and sweeps that are kept.

    Returns
    -------
    RegressionDraws
        With a leading axis of data sets where the release has one.

    References
    ----------
    Bernstein and Sheldon (2019), Differentially private Bayesian linear regression.
    """
    arguments = (release._replace(fourth_moments=None),)
    shared = (FixedCovariates(covariates), prior)
    return _sample(arguments, shared, release, prior, key, num_burn_in, num_draws)


def gibbs_ss_update(
    release: NoisyRegression,
    prior: NormalInverseGamma,
    covariate_prior: NormalInverseWishart,
    key: jax.Array,
    *,
    num_burn_in: int = 2000,
    num_draws: int = 5000,
) -> RegressionDraws:
    """Draws with normal covariates whose mean and covariance are learned with the rest.

    ``covariate_prior`` is on the mean and covariance of the d − 1 covariates. Other arguments and the result are those
    of :func:`gibbs_ss_prior`.
    """
    arguments = (release._replace(fourth_moments=None),)
    shared = (covariate_prior, prior)
    return _sample(arguments, shared, release, prior, key, num_burn_in, num_draws)


class _State(NamedTuple):
    weights: jax.Array
    variance: jax.Array
    covariates: CovariateState
    noise_variances: jax.Array


def _sample(
    arguments: tuple[Any, ...],
    shared: tuple[Any, ...],
    release: NoisyRegression,
    prior: NormalInverseGamma,
    key: jax.Array,
    num_burn_in: int,
    num_draws: int,
) -> RegressionDraws:
    size, num_regressors = np.shape(release.sums)[-1], np.shape(prior.mean)[-1]
    expected = num_regressors * (num_regressors + 1) // 2 + num_regressors
    if size != expected:
        raise ValueError(
            f"The prior has {num_regressors} weights, the constant's included, which go with {expected} noisy sums, "
            f"but the release holds {size}. Give the prior one weight for each covariate and one for the constant."
        )
    several = np.ndim(release.sums) == 2
    return run_chains(
        _start, _sweep, _kept, arguments, shared, key, several=several, num_burn_in=num_burn_in, num_draws=num_draws
    )


def _kept(state: _State) -> RegressionDraws:
    return RegressionDraws(state.weights, state.variance)  # pyright: ignore[reportArgumentType]


def _start(key: jax.Array, release: NoisyRegression, covariates: CovariateModel, prior: NormalInverseGamma) -> _State:
    variance_key, weights_key, covariate_key, noise_key = jax.random.split(key, 4)
    variance = prior.scale / jax.random.gamma(variance_key, prior.shape)
    weights = prior.mean + _prior_deviation(weights_key, variance, prior)
    noise_variances = release.noise.initial_variances(noise_key, release.sums.size)
    return _State(jnp.asarray(weights), variance, covariates.draw(covariate_key), noise_variances)


def _sweep(
    key: jax.Array, state: _State, release: NoisyRegression, covariates: CovariateModel, prior: NormalInverseGamma
) -> _State:
    collapsed_key, sums_key, weights_key, covariate_key, noise_key = jax.random.split(key, 5)
    state = _collapsed_step(collapsed_key, state, release, covariates, prior)
    sums = _draw_sums(sums_key, state, release, covariates)
    gram = _possible_gram(sums, release.num_records, state.weights.size)
    weights, variance = _draw_weights(weights_key, gram, release.num_records, prior)
    learned = covariates.update(covariate_key, gram[:-1, :-1], release.num_records)
    noise_variances = release.noise.variances(noise_key, release.sums - sums)
    return _State(weights, variance, learned, noise_variances)


def _collapsed_step(
    key: jax.Array, state: _State, release: NoisyRegression, covariates: CovariateModel, prior: NormalInverseGamma
) -> _State:
    """Move θ and the covariates' mean given z, with the sums integrated out."""
    weights_key, mean_key, slice_key = jax.random.split(key, 3)

    def log_likelihood(point: tuple[jax.Array, jax.Array]) -> jax.Array:
        moments = covariates.moments(state.covariates._replace(mean=point[1]))
        root, distance = _noisy_law(point[0], state.variance, moments, state.noise_variances, release)
        scaled = solve_triangular(root, distance, lower=True)
        return -jnp.sum(jnp.log(jnp.diagonal(root))) - 0.5 * scaled @ scaled

    direction = (
        _prior_deviation(weights_key, state.variance, prior),
        covariates.deviation(mean_key, state.covariates),
    )
    centre = (jnp.asarray(prior.mean), covariates.centre())
    point = (state.weights, state.covariates.mean)
    weights, mean = elliptical_slice(slice_key, point, direction, centre, log_likelihood)
    return state._replace(weights=weights, covariates=state.covariates._replace(mean=mean))


def _noisy_law(
    weights: jax.Array,
    variance: jax.Array,
    moments: CovariateMoments,
    noise_variances: jax.Array,
    release: NoisyRegression,
) -> tuple[jax.Array, jax.Array]:
    """Cholesky factor of N Cov[t] + diag ω, and z − N E[t]."""
    record = record_moments(weights, variance, moments)
    covariance = release.num_records * record.covariance + jnp.diag(noise_variances)
    return jnp.linalg.cholesky(covariance), release.sums - release.num_records * record.mean


def _draw_sums(key: jax.Array, state: _State, release: NoisyRegression, covariates: CovariateModel) -> jax.Array:
    """s given everything: sums and noise drawn from their own laws, then moved together to meet z (Matheron's rule).

    With V = N Cov[t] + Ω, s₀ ~ N(N E[t], N Cov[t]) and e₀ ~ N(0, Ω), s = z − e₀ − ΩV⁻¹(z − s₀ − e₀) has the
    conditional law, and no covariance but V, which the noise keeps away from singular, is factored.
    """
    free_key, noise_key = jax.random.split(key)
    moments = covariates.moments(state.covariates)
    root, _ = _noisy_law(state.weights, state.variance, moments, state.noise_variances, release)
    sums = draw_sums(free_key, state.weights, state.variance, moments, release.num_records)
    noise = jnp.sqrt(state.noise_variances) * jax.random.normal(noise_key, sums.shape)
    missing = cho_solve((root, True), release.sums - sums - noise)
    return release.sums - noise - state.noise_variances * missing


def _possible_gram(sums: jax.Array, num_records: Any, num_regressors: int) -> jax.Array:
    """Sums as the matrix Σ(x, y)(x, y)ᵀ, moved to the nearest that records can have: no negative eigenvalues."""
    first, second, _ = pair_indices(num_regressors)
    pairs = len(first)
    gram = jnp.zeros((num_regressors + 1, num_regressors + 1))
    gram = gram.at[first, second].set(sums[:pairs]).at[-2, -2].set(num_records)
    gram = gram.at[:-1, -1].set(sums[pairs:-1]).at[-1, -1].set(sums[-1])
    values, vectors = jnp.linalg.eigh(jnp.triu(gram) + jnp.triu(gram, 1).T, symmetrize_input=False)
    return (vectors * jnp.maximum(values, 0)) @ vectors.T


def _draw_weights(
    key: jax.Array, gram: jax.Array, num_records: Any, prior: NormalInverseGamma
) -> tuple[jax.Array, jax.Array]:
    """(θ, σ²) from the conjugate posterior given Σ(x, y)(x, y)ᵀ."""
    variance_key, weights_key = jax.random.split(key)
    pull = prior.precision @ prior.mean
    root = jnp.linalg.cholesky(gram[:-1, :-1] + prior.precision)
    mean = cho_solve((root, True), gram[:-1, -1] + pull)
    explained = solve_triangular(root, gram[:-1, -1] + pull, lower=True)
    surplus = gram[-1, -1] + prior.mean @ pull - explained @ explained
    scale = prior.scale + 0.5 * jnp.maximum(surplus, 0)  # a possible matrix leaves nothing negative but rounding
    variance = scale / jax.random.gamma(variance_key, prior.shape + 0.5 * num_records)
    normal = jax.random.normal(weights_key, mean.shape)
    return mean + jnp.sqrt(variance) * solve_triangular(root.T, normal, lower=False), variance


def _prior_deviation(key: jax.Array, variance: jax.Array, prior: NormalInverseGamma) -> jax.Array:
    """θ minus its prior mean, from the prior given σ²."""
    root = jnp.linalg.cholesky(jnp.asarray(prior.precision))
    normal = jax.random.normal(key, jnp.shape(prior.mean))
    return jnp.sqrt(variance) * solve_triangular(root.T, normal, lower=False)
