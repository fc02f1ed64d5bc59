"""The NUTS engine: NumPyro's sampler on the sums, O(p) per leapfrog step however long the run was.

The paper's engine, kept as a cross-check of the exact one. Unknowns are sampled in units of their own scales, v
around its prior and φ* around its conditional mean, and start there: from the published start, v within ±2, a curvature
of hundreds is far away.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.posterior.na_dpvi.model import GradientModel, conditional, log_likelihood, log_prior

DEFAULT_WARMUP = 1000


def nuts_draws(model: GradientModel, num_draws: int, key: jax.Array, num_warmup: int = DEFAULT_WARMUP) -> np.ndarray:
    """(num_draws, p) draws of φ* from one chain, in 64-bit mode."""
    from numpyro.infer import MCMC, NUTS

    psi = _initial_psi(model)
    centre, spread = conditional(model, model.curvature_mean, psi)
    scale = np.sqrt(spread)

    def potential(unknowns: dict[str, Any]) -> jax.Array:
        v = model.curvature_mean + model.curvature_scale * unknowns["curvature"]
        phi_star = centre + scale * unknowns["optimum"]
        psi = unknowns.get("subsampling", jnp.zeros_like(v))
        return -jnp.sum(log_likelihood(model, v, phi_star, psi) + log_prior(model, v, phi_star, psi))

    start = {"curvature": np.zeros_like(centre), "optimum": np.zeros_like(centre)}
    if model.subsampling_variance:
        start["subsampling"] = psi
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        sampler = MCMC(NUTS(potential_fn=potential), num_warmup=num_warmup, num_samples=num_draws, progress_bar=False)
        sampler.run(key, init_params=jax.tree.map(jnp.asarray, start))
        draws = np.asarray(sampler.get_samples()["optimum"])
    return centre + scale * draws


def _initial_psi(model: GradientModel) -> np.ndarray:
    """What the residuals show beyond the privacy noise, and a little where they show nothing."""
    if not model.subsampling_variance:
        return np.zeros_like(model.noise_scale)
    surplus = model.statistics.residual / model.statistics.num_steps - model.noise_scale**2
    return np.sqrt(np.maximum(surplus, 0.1))
