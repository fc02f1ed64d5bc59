"""Optimisers that belong to a method: the step size under which NA-DPVI was analysed."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from dpvi.declared import validation
from dpvi.declared.plan import Plan
from dpvi.families.base import Family


def na_dpvi_sgd(
    plan: Plan, family: Family, dimension: int, *, beta: Any = None, lambda_c: Any = 1.0
) -> optax.GradientTransformation:
    """Plain gradient descent with NA-DPVI's step size, for traces that :meth:`Result.posterior` reads as ``"na_dpvi"``.

    The step size of each variational parameter is λ = κ β √2 λ_c / (σ C √(T p)) with κ the sampling rate, σC the noise
    scale and T the number of steps of ``plan``, and p the number of variational parameters. The paper's λ_heur has no κ
    because it steps along the noisy sum itself; optimisers here see that sum divided by κ, so that both take the same
    steps.

    Parameters
    ----------
    plan
        The plan of the run; it must add noise.
    family, dimension
        The variational family and the number of unconstrained parameters d, which give p.
    beta
        The fixed β of ``Preconditioned(beta=...)``, a number or one per variational parameter; 1 for ``Vanilla``.
    lambda_c
        The constant that is left to choose, a number or one per variational parameter. The paper uses 1, and √(p/2) in
        some experiments: larger explores more and estimates curvatures better, until the loss is no longer quadratic
        over the iterates.

    References
    ----------
    Noise-aware DPVI, appendices D, G and H.2.

    Examples
    --------
    >>> import dpvi
    >>> from dpvi.declared.plan import GaussianRelease, Plan
    >>> release = GaussianRelease("gradients", sampling_rate=0.1, count=10_000, noise_multiplier=360.0, clip_norm=2.0)
    >>> plan = Plan(epsilon=0.1, delta=1e-5, releases=(release,), accountant="as published")
    >>> optimizer = na_dpvi_sgd(plan, dpvi.MeanField(), 1, beta=[1.0, 120.0])
    >>> updates, _ = optimizer.update(jnp.ones(2), optimizer.init(jnp.zeros(2)))
    >>> print(*(f"{float(step):.3g}" for step in updates))
    -1.39e-06 -0.000167
    """
    rates = learning_rates(plan, family, dimension, beta=beta, lambda_c=lambda_c)

    def descend(gradients: Any, parameters: Any) -> Any:
        del parameters
        return -jnp.asarray(rates, gradients.dtype) * gradients

    return optax.stateless(descend)


def learning_rates(plan: Plan, family: Family, dimension: int, *, beta: Any = None, lambda_c: Any = 1.0) -> np.ndarray:
    """λ of every variational parameter, float64, (p,); see :func:`na_dpvi_sgd`."""
    if not (plan.noise_scale > 0 and math.isfinite(plan.noise_scale)):
        raise ValueError(
            "NA-DPVI's step size is set by the privacy noise, and this plan adds none; use an optimiser such as "
            "optax.adam(0.01)."
        )
    validation.positive("dimension", dimension)
    size = family.num_parameters(dimension)
    factors = _per_parameter("beta", 1.0 if beta is None else beta, size)
    factors = factors * _per_parameter("lambda_c", lambda_c, size)
    return factors * plan.sampling_rate * math.sqrt(2) / (plan.noise_scale * math.sqrt(plan.num_steps * size))


def _per_parameter(name: str, value: Any, size: int) -> np.ndarray:
    values = np.asarray(value, np.float64)
    if values.shape not in ((), (size,)):
        raise ValueError(
            f"{name} must be one number or one per variational parameter, {size}; got shape {values.shape}."
        )
    if not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"{name} must hold finite positive numbers, got {value!r}.")
    return np.broadcast_to(values, (size,))
