"""Chains as compiled loops: one for a release, or many side by side for a study of many data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Release = TypeVar("Release", bound=tuple)


def stack_releases(releases: Sequence[Release]) -> Release:
    """Releases of equally shaped data sets as one with a leading axis: samplers then run a chain for each.

    Examples
    --------
    >>> from studies.baselines.bernstein_sheldon.noise import LaplaceNoise, NoisySums
    >>> one = NoisySums(np.array([3.0]), LaplaceNoise(10.0), 20, 0.0, 1.0)
    >>> stack_releases([one, one]).sums.shape
    (2, 1)
    """
    if not releases:
        raise ValueError("releases must hold at least one release, got none.")
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *releases)


def run_chains(
    start: Callable[..., Any],
    sweep: Callable[..., Any],
    keep: Callable[[Any], Any],
    arguments: tuple[Any, ...],
    shared: tuple[Any, ...],
    key: jax.Array,
    *,
    several: bool,
    num_burn_in: int,
    num_draws: int,
) -> Any:
    """Draws of a Markov chain, in 64-bit mode: a pytree like ``keep(state)`` with an axis of draws.

    ``start(key, *arguments, *shared)`` gives the first state, ``sweep(key, state, *arguments, *shared)`` the next. With
    ``several``, ``arguments`` have a leading axis of lanes, each with a chain and a key of its own, and draws are
    (lanes, num_draws, …).
    """
    for name, value, least in (("num_burn_in", num_burn_in, 0), ("num_draws", num_draws, 1)):
        if isinstance(value, bool) or value != int(value) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        arguments, shared = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (arguments, shared))
        keys = jax.random.split(key, len(jax.tree.leaves(arguments)[0])) if several else key
        draws = _compiled(start, sweep, keep, several, int(num_burn_in), int(num_draws), keys, arguments, shared)
        return jax.tree.map(np.asarray, draws)


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5))
def _compiled(
    start: Callable[..., Any],
    sweep: Callable[..., Any],
    keep: Callable[[Any], Any],
    several: bool,
    num_burn_in: int,
    num_draws: int,
    keys: jax.Array,
    arguments: tuple[Any, ...],
    shared: tuple[Any, ...],
) -> Any:
    def chain(key: jax.Array, arguments: tuple[Any, ...]) -> Any:
        def step(state: Any, index: jax.Array) -> tuple[Any, Any]:
            state = sweep(jax.random.fold_in(key, index), state, *arguments, *shared)
            return state, keep(state)

        num_sweeps = num_burn_in + num_draws
        state = start(jax.random.fold_in(key, num_sweeps), *arguments, *shared)
        # one loop, because a second one for the burn-in would double the time to compile
        draws = jax.lax.scan(step, state, jnp.arange(num_sweeps))[1]
        return jax.tree.map(lambda kept: kept[num_burn_in:], draws)

    return jax.vmap(chain, (0, 0))(keys, arguments) if several else chain(keys, arguments)
