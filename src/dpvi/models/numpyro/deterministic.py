"""Deterministic sites that belong to no record: functions of the parameters that a model names for its readers.

``numpyro.deterministic`` also names what belongs to records, such as fitted values. These are left out: here a model
runs on records of zeros, so that no record is needed to read a posterior.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.models.dependence import depends
from dpvi.models.numpyro import execution
from dpvi.models.numpyro.discovery import batched
from dpvi.models.numpyro.plated import PlatedModel
from dpvi.models.simulate import differs

_SIZES = (2, 3)
_SAME = 1e-4


def deterministic_sites(model: Any, xi: jax.Array | None = None) -> Callable[[jax.Array], dict[str, jax.Array]] | None:
    """``z -> {site: value}`` for the deterministic sites that depend on the parameters alone.

    Parameters
    ----------
    model
        A NumPyro model, alone or with its guide.
    xi
        With a guide, the parameters of guide and model.

    Returns
    -------
    None where there is no such site, or where the model is given by log densities.
    """
    if not isinstance(model, PlatedModel):
        own = getattr(model, "deterministic_sites", None)  # of another front-end
        return None if own is None else own()
    key = jax.eval_shape(lambda: jax.random.key(0))
    vector = jax.ShapeDtypeStruct((model.dimension,), jnp.result_type(float))

    def free(size: int) -> set[tuple[str, tuple[int, ...]]]:
        """Names and shapes of sites that read neither records nor draws."""
        program = jax.make_jaxpr(lambda z, key, batch: _values(model, xi, z, key, batch), return_shape=True)
        jaxpr, shapes = program(vector, key, batched(model.structure, size))
        flags = depends(jaxpr, [False] + [True] * (len(jaxpr.in_avals) - 1))
        return {(name, shapes[name].shape) for name, reads in zip(sorted(shapes), flags, strict=True) if not reads}

    same_shape = sorted(name for name, _ in free(_SIZES[0]) & free(_SIZES[1]))
    names = _without_sizes(model, xi, same_shape) if same_shape else []
    # traced even when called eagerly: NumPyro checks concrete values, and a placeholder's need not be valid
    return jax.jit(lambda z: _at(model, xi, z, names, 1), inline=True) if names else None


def _without_sizes(model: Any, xi: jax.Array | None, names: list[str]) -> list[str]:
    """Those that are the same for any number of records, which is private and not the placeholder's."""
    z = jnp.asarray(0.3 * np.random.default_rng(1).standard_normal(model.dimension), jnp.result_type(float))
    one, other = jax.jit(lambda z: tuple(_at(model, xi, z, names, size) for size in _SIZES))(z)
    return [name for name in names if not differs(one[name], other[name], _SAME)]


def _at(model: Any, xi: jax.Array | None, z: jax.Array, names: list[str], size: int) -> dict[str, jax.Array]:
    values = _values(model, xi, z, jax.random.key(0), model.placeholder(size))
    return {name: values[name] for name in names}


def _values(model: Any, xi: jax.Array | None, z: jax.Array, key: jax.Array, batch: Any) -> dict[str, jax.Array]:
    """All deterministic sites of the model at z, ``key`` for what a guide would draw for each record."""
    by_name = {site.name: site for site in model.sites}
    imputed = getattr(model.layout, "imputed", {})
    size = jax.tree.leaves(batch)[0].shape[0]
    fill_latent = execution.fill_from(z, by_name, imputed, size)
    parameters = {} if xi is None else model.parameters.constrain(xi)

    def fill(message: dict) -> Any:
        return parameters.get(message["name"]) if message["type"] == "param" else fill_latent(message)

    trace = execution.execute(model.function, batch, fill, key=key)
    return {name: jnp.asarray(each["value"]) for name, each in trace.items() if execution.is_deterministic(each)}
