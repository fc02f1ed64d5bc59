"""Maps T from the real line to positive standard deviations, with derivative and inverse."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from dpvi.declared.validation import positive

SCALES = ("softplus", "exp")


def check_scale(scale: str, initial_scale: float) -> float:
    """``initial_scale`` as a positive float, once T is known."""
    if scale not in SCALES:
        raise ValueError(f"scale must be 'softplus' or 'exp', got {scale!r}.")
    return positive("initial_scale", initial_scale)


def apply_scale(scale: str, s: jax.Array) -> jax.Array:
    """T(s)."""
    return jnp.exp(s) if scale == "exp" else jax.nn.softplus(s)


def scale_derivative(scale: str, s: jax.Array) -> jax.Array:
    """T'(s)."""
    return jnp.exp(s) if scale == "exp" else jax.nn.sigmoid(s)


def invert_scale(scale: str, value: float) -> float:
    """s with T(s) = value."""
    return math.log(value) if scale == "exp" else value + math.log(-math.expm1(-value))
