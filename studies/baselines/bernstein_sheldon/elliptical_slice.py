"""Elliptical slice sampling (Murray, Adams and MacKay, 2010): a step for Gaussian priors that has nothing to tune.

This one is compiled, for chains that are loops of a JAX program; :mod:`dpvi.posterior.na_dpvi.elliptical_slice` has the
same step for NumPy arrays of chains, where candidates are tried until one is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_MOST_TRIES = 8  # under vmap every lane waits for the last


def elliptical_slice(
    key: jax.Array, point: Any, direction: Any, centre: Any, log_likelihood: Callable[[Any], jax.Array]
) -> Any:
    """The next point of a chain with density N(point; centre, C) exp(log_likelihood(point)).

    Candidates lie on the ellipse through ``point`` and ``direction`` around ``centre``; the bracket of angles shrinks
    towards the point until one has a likelihood above a random level. After eight candidates the chain stays where it
    is. That keeps its law: a path to an accepted candidate can be walked backwards in as many steps, whatever their
    limit.

    Parameters
    ----------
    key
        A PRNG key.
    point, centre
        Pytrees of equal shapes.
    direction
        A draw of N(0, C) of the same shape.
    log_likelihood
        Up to a constant; where it is NaN nothing is accepted.
    """
    level_key, angle_key, tries_key = jax.random.split(key, 3)
    level = log_likelihood(point) + jnp.log(jax.random.uniform(level_key))

    def at(angle: jax.Array) -> Any:
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        return jax.tree.map(lambda p, d, c: c + (p - c) * cosine + d * sine, point, direction, centre)

    def goes_on(bracket: tuple[jax.Array, ...]) -> jax.Array:
        angle, _, _, tries = bracket
        return ~(log_likelihood(at(angle)) > level) & (tries < _MOST_TRIES)

    def shrink(bracket: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        angle, low, high, tries = bracket
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        uniform = jax.random.uniform(jax.random.fold_in(tries_key, tries))
        return low + uniform * (high - low), low, high, tries + 1

    first = 2 * jnp.pi * jax.random.uniform(angle_key)
    angle, _, _, tries = jax.lax.while_loop(goes_on, shrink, (first, first - 2 * jnp.pi, first, jnp.asarray(0)))
    found = at(angle)
    return jax.tree.map(lambda new, old: jnp.where(tries < _MOST_TRIES, new, old), found, point)
