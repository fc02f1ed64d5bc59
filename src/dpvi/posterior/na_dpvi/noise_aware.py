"""NA-DPVI: from a trace to a posterior that accounts for the privacy noise (noise-aware DPVI).

Instead of trusting an iterate, the method asks where the optimum φ* of the variational problem may be, given every
noisy gradient of the run and how noisy each was, and mixes q(·; φ*) over the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dpvi.declared import validation
from dpvi.declared.plan import Plan
from dpvi.families.base import Family
from dpvi.posterior.na_dpvi.dense import DenseModel, dense_statistics
from dpvi.posterior.na_dpvi.elliptical_slice import DEFAULT_SWEEPS_BEFORE, slice_draws
from dpvi.posterior.na_dpvi.exact import exact_draws
from dpvi.posterior.na_dpvi.laplace import laplace_draws
from dpvi.posterior.na_dpvi.mixture import FamilyMixture, MeanFieldMixture, mixture_of
from dpvi.posterior.na_dpvi.model import GradientModel, gradient_model, trace_statistics
from dpvi.posterior.na_dpvi.nuts import DEFAULT_WARMUP, nuts_draws
from dpvi.release.trace import Trace

# by curvature, the default first
ENGINES = {"diagonal": ("exact", "nuts", "laplace"), "dense": ("elliptical_slice",)}
_WARMUP = {"nuts": DEFAULT_WARMUP, "elliptical_slice": DEFAULT_SWEEPS_BEFORE}


def noise_aware(
    trace: Trace,
    family: Family,
    plan: Plan,
    estimator: Mapping[str, Any],
    *,
    curvature: str = "diagonal",
    engine: str | None = None,
    burn_in: float = 0.2,
    location_prior_scale: float = 1.0,
    scale_prior_scale: float = 1.0,
    subsampling_variance: bool = True,
    num_draws: int = 4000,
    num_warmup: int | None = None,
    key: jax.Array | None = None,
) -> MeanFieldMixture | FamilyMixture:
    """The mixture of q(·; φ*) over the posterior of the optimum φ*.

    Parameters
    ----------
    trace, family, plan, estimator
        Those of a result. The estimator must be ``Vanilla`` or ``Preconditioned`` with a fixed ``beta``.
    curvature
        ``"diagonal"`` (the paper's model: optima of different parameters are independent) or ``"dense"`` (any symmetric
        positive definite matrix, for parameters that depend on each other; up to 64 variational parameters).
    engine
        With a diagonal curvature ``"exact"`` (the default: quadrature and conjugacy; fastest and without error worth
        mentioning), ``"nuts"`` or ``"laplace"``, on the same model; with a dense one ``"elliptical_slice"``.
    burn_in
        Share of the run that is left out because the iterates were still on their way, rounded up to whole blocks.
    location_prior_scale, scale_prior_scale
        τ, the prior standard deviation of φ* around the mean iterate, for locations and for all other variational
        parameters. The paper prints 1 for both; 10 for locations suits runs that have not quite arrived.
    subsampling_variance
        Whether gradients vary by ψ² beyond the privacy noise, with ψ ~ N(0, 1).
    num_draws
        Draws of φ*, the components of the mixture.
    num_warmup
        Warm-up steps of ``"nuts"``, 1000 by default, or of each of the chains of ``"elliptical_slice"``, 100.
    key
        Randomness of the draws; always the same by default, so that a posterior can be computed again.

    Raises
    ------
    ValueError
        Where the model does not describe the run: other estimators, a β that changes with the iterate, no noise.
    """
    engine = _checked_engine(curvature, engine)
    num_draws = validation.whole_number("num_draws", num_draws)
    num_warmup = _WARMUP.get(engine, 1) if num_warmup is None else num_warmup
    num_warmup = validation.whole_number("num_warmup", num_warmup)
    settings: dict[str, Any] = {
        "burn_in": burn_in,
        "location_prior_scale": location_prior_scale,
        "scale_prior_scale": scale_prior_scale,
        "subsampling_variance": subsampling_variance,
    }
    key = jax.random.key(0) if key is None else key
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    if curvature == "dense":
        dense = dense_model_of_run(trace, family, plan, estimator, **settings)
        draws = slice_draws(dense, num_draws, rng, num_warmup)
        return FamilyMixture(family, draws.astype(trace.final.dtype))  # whole draws: optima depend on each other
    model = model_of_run(trace, family, plan, estimator, **settings)
    if engine == "nuts":
        draws = nuts_draws(model, num_draws, key, num_warmup)
    else:
        draws = (exact_draws if engine == "exact" else laplace_draws)(model, num_draws, rng)
    return mixture_of(family, draws.astype(trace.final.dtype))


def model_of_run(
    trace: Trace,
    family: Family,
    plan: Plan,
    estimator: Mapping[str, Any],
    *,
    burn_in: float = 0.2,
    location_prior_scale: float = 1.0,
    scale_prior_scale: float = 1.0,
    subsampling_variance: bool = True,
) -> GradientModel:
    """The gradient model of a run with a diagonal curvature; see :func:`noise_aware` for the settings."""
    noise_scale, prior_scale = _scales_of_run(
        trace, family, plan, estimator, burn_in, location_prior_scale, scale_prior_scale
    )
    statistics = trace_statistics(trace, burn_in)
    return gradient_model(statistics, plan.sampling_rate, noise_scale, prior_scale, bool(subsampling_variance))


def dense_model_of_run(
    trace: Trace,
    family: Family,
    plan: Plan,
    estimator: Mapping[str, Any],
    *,
    burn_in: float = 0.2,
    location_prior_scale: float = 1.0,
    scale_prior_scale: float = 1.0,
    subsampling_variance: bool = True,
) -> DenseModel:
    """The gradient model of a run with a dense curvature; see :func:`noise_aware` for the settings."""
    noise_scale, prior_scale = _scales_of_run(
        trace, family, plan, estimator, burn_in, location_prior_scale, scale_prior_scale
    )
    noise_scale = np.broadcast_to(noise_scale, prior_scale.shape)
    statistics = dense_statistics(trace, burn_in)
    return DenseModel(statistics, plan.sampling_rate, noise_scale, prior_scale, bool(subsampling_variance))


def _scales_of_run(
    trace: Trace,
    family: Family,
    plan: Plan,
    estimator: Mapping[str, Any],
    burn_in: float,
    location_prior_scale: float,
    scale_prior_scale: float,
) -> tuple[np.ndarray, np.ndarray]:
    """σC/β and τ, or a sentence why the model does not describe the run."""
    if not 0 <= validation.number("burn_in", burn_in) < 1:
        raise ValueError(f"burn_in must lie in [0, 1), got {burn_in!r}; it is the share of steps that is left out.")
    beta = _fixed_beta(estimator)
    if plan.clipping is not None:
        raise ValueError(
            "NA-DPVI needs noise of the same size at every step and in every coordinate, but this plan's noise follows "
            "clip norms that adapt or differ between layers; use method='stationary' or 'average'."
        )
    if not (plan.noise_scale > 0 and math.isfinite(plan.noise_scale)):
        raise ValueError(
            "NA-DPVI models the privacy noise on the gradients, and this plan adds none; "
            "use method='stationary' or 'average'."
        )
    dimension, size = np.shape(family.location(jax.numpy.asarray(trace.final)))[0], len(trace.final)
    if beta.size not in (1, size):
        raise ValueError(f"The estimator's beta has {beta.size} entries, but the trace has {size} parameters.")
    prior_scale = np.full(size, validation.positive("scale_prior_scale", scale_prior_scale))
    prior_scale[:dimension] = validation.positive("location_prior_scale", location_prior_scale)
    return plan.noise_scale / beta, prior_scale


def _checked_engine(curvature: str, engine: str | None) -> str:
    if curvature not in ENGINES:
        raise ValueError(f"curvature must be one of {', '.join(map(repr, ENGINES))}, got {curvature!r}.")
    engines = ENGINES[curvature]
    if engine is not None and engine not in engines:
        raise ValueError(
            f"engine must be one of {', '.join(map(repr, engines))} with curvature={curvature!r}, got {engine!r}."
        )
    return engines[0] if engine is None else engine


def _fixed_beta(estimator: Mapping[str, Any]) -> np.ndarray:
    """β of the release, or a sentence why this run has none that stays put."""
    name, beta = estimator.get("name"), estimator.get("beta")
    if name == "Vanilla":
        return np.ones(1)
    if name == "Preconditioned" and beta is not None:
        return np.asarray(beta, np.float64)
    if name == "Preconditioned":
        raise ValueError(
            "NA-DPVI needs noise of the same size at every step, but Preconditioned() scales by 1/T'(s) at the current "
            "iterate. Fit with Preconditioned(beta=...), a fixed vector."
        )
    raise ValueError(
        f"NA-DPVI models gradients that carry independent Gaussian noise of known size on every variational parameter; "
        f"{name} does not release such gradients. Fit with Vanilla() or Preconditioned(beta=...)."
    )
