"""NUTS on z with the likelihood of the score posterior: the check on Gauss-Newton.

Records are drawn once, at the Gauss-Newton answer ẑ, and reweighted to every other z by p(x; z) / p(x; ẑ); enumerated
responses take their probabilities. The log density is then a smooth function of z with exact derivatives,

    log p(z) − ½ (b̄ − m(z))ᵀ S(z)⁻¹ (b̄ − m(z)) − ½ log det S(z),

without the Gaussian form and the fixed covariance of Gauss-Newton. The chain runs in coordinates in which the
Gauss-Newton answer is standard normal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.population.covariates import Population
from dpvi.posterior.score.blocks import Blocks
from dpvi.posterior.score.gauss_newton import GaussNewton, gauss_newton
from dpvi.posterior.score.model import ScoreModel, as_float64


class Drawn(NamedTuple):
    """The distribution of z that a chain has drawn from, as its draws."""

    draws: np.ndarray  # (M, d)

    @property
    def mean(self) -> np.ndarray:
        return self.draws.mean(axis=0)

    @property
    def standard_deviations(self) -> np.ndarray:
        return self.draws.std(axis=0)

    def sample(self, key: jax.Array, num_samples: int) -> jax.Array:
        """(num_samples, d): draws of the chain in random order, more than once only where more are asked for."""
        index = jax.random.choice(key, len(self.draws), (num_samples,), replace=num_samples > len(self.draws))
        return jnp.asarray(self.draws)[index]

    def log_prob(self, z: jax.Array) -> jax.Array:
        raise ValueError(
            "Draws of a chain have no density at a given point. Use posterior('score') with engine='gauss_newton' for "
            "posterior.log_prob."
        )


def log_posterior(
    scores: ScoreModel,
    blocks: Blocks,
    reference: np.ndarray,
    seed: int | None = None,
    population: Population | None = None,
) -> Callable[[jax.Array], jax.Array]:
    """The unnormalised log density of z, from records drawn at ``reference``; call it inside ``jax.enable_x64``."""
    blocks = Blocks(*(jnp.asarray(part, jnp.float64) for part in blocks))
    at = jnp.asarray(reference, jnp.float64)
    people = as_float64(scores.population() if population is None else population)
    simulated = scores.simulate(at, scores.key(seed), people)
    clipped = jax.jit(scores.clipped_scores)(blocks.query, simulated.records)
    target = scores.target(blocks)

    def log_density(z: jax.Array) -> jax.Array:
        weights = scores.weights(z, simulated, at)
        moments = scores.moments(blocks, simulated, clipped, weights, scores.scores(z, simulated.records))
        factor = jnp.linalg.cholesky(moments.covariance)
        residual = jax.scipy.linalg.solve_triangular(factor, target - moments.mean, lower=True)
        log_likelihood = -0.5 * residual @ residual - jnp.sum(jnp.log(jnp.diagonal(factor)))
        return scores.model.log_prior(z) + log_likelihood

    return log_density


def sample_nuts(
    scores: ScoreModel,
    blocks: Blocks,
    key: jax.Array,
    num_samples: int = 1000,
    num_warmup: int = 500,
    seed: int | None = None,
    population: Population | None = None,
    found: GaussNewton | None = None,
) -> np.ndarray:
    """Draws of z from the score posterior by NumPyro's NUTS, (num_samples, d), float64.

    ``found`` is the Gauss-Newton answer for the same settings, where it is known already.
    """
    from numpyro.infer import MCMC, NUTS

    if found is None:
        found = gauss_newton(scores, blocks, start=blocks.query[-1], seed=seed, population=population)
    if not found.converged:
        raise ValueError("NUTS starts from the Gauss-Newton answer, which was not found: measure nearer to the answer.")
    with jax.enable_x64(True):
        factor = jnp.asarray(np.linalg.cholesky(found.covariance))
        log_density = log_posterior(scores, blocks, found.mean, seed, population)

        def potential(standard: jax.Array) -> jax.Array:
            return -log_density(jnp.asarray(found.mean) + factor @ standard)

        with jax.numpy_dtype_promotion("standard"):
            chain = MCMC(
                NUTS(potential_fn=potential), num_warmup=num_warmup, num_samples=num_samples, progress_bar=False
            )
            chain.run(key, init_params=jnp.zeros(len(found.mean)))
            draws = np.asarray(chain.get_samples())
    return found.mean + draws @ np.asarray(factor).T
