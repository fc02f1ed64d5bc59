"""The parameters of a guide and its model as one flat vector ξ, and the bijections to their own constraints.

A ``param`` site holds an array or, for a network, a whole pytree of arrays. Its leaves follow each other in ξ, each
mapped to the site's constraint by NumPyro's bijection; a network's weights are real, so they are in ξ as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to

from dpvi.models.base import ModelError
from dpvi.models.sites import is_real


class Parameter(NamedTuple):
    """One ``param`` site.

    Attributes
    ----------
    name
        The site's name.
    constraint
        NumPyro constraint of every leaf.
    tree
        How the leaves form the site's value.
    leaves
        Shape and dtype of each leaf on the constraint.
    unconstrained_shapes
        Shapes before the bijection; their products are the leaves' shares of ξ.
    offset
        Where the site begins in ξ.
    """

    name: str
    constraint: Any
    tree: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    unconstrained_shapes: tuple[tuple[int, ...], ...]
    offset: int

    @property
    def size(self) -> int:
        """How many entries of ξ belong to the site."""
        return sum(math.prod(shape) for shape in self.unconstrained_shapes)

    def of(self, xi: jax.Array) -> Any:
        """The site's value at ξ."""
        leaves, start = [], self.offset
        for leaf, shape in zip(self.leaves, self.unconstrained_shapes, strict=True):
            stop = start + math.prod(shape)
            part = jnp.reshape(jax.lax.slice(xi, (start,), (stop,)), shape)
            value = part if is_real(self.constraint) else biject_to(self.constraint)(part)
            leaves.append(value.astype(leaf.dtype))
            start = stop
        return jax.tree.unflatten(self.tree, leaves)

    def flat(self, value: Any, dtype: Any) -> list[jax.Array]:
        """The site's parts of ξ for a value, one vector per leaf."""
        leaves, tree = jax.tree.flatten(value)
        shapes = [jnp.shape(leaf) for leaf in leaves]
        expected = [leaf.shape for leaf in self.leaves]
        if tree != self.tree or shapes != expected:
            raise ValueError(f"Parameter {self.name!r} must hold arrays of shapes {expected}, got {shapes}.")
        arrays = [jnp.asarray(leaf, dtype) for leaf in leaves]
        if not is_real(self.constraint):
            arrays = [biject_to(self.constraint).inv(array) for array in arrays]
        return [jnp.ravel(array) for array in arrays]

    def arrays(self) -> list[tuple[str, int]]:
        """(name, entries of ξ) of each leaf: ``site``, or ``site/path/to/leaf`` where the site holds a tree."""
        paths, _ = jax.tree.flatten_with_path(jax.tree.unflatten(self.tree, range(len(self.leaves))))
        names = [
            "/".join([self.name, *([jax.tree_util.keystr(path, simple=True, separator="/")] if path else [])])
            for path, _ in paths
        ]
        return list(zip(names, map(math.prod, self.unconstrained_shapes), strict=True))


class Parameters:
    """All ``param`` sites of a guide and its model, in the order in which they are met.

    Parameters
    ----------
    values
        ``{site: value}``, of which only shapes and dtypes are kept.
    constraints
        ``{site: constraint}``.
    """

    def __init__(self, values: Mapping[str, Any], constraints: Mapping[str, Any]):
        sites, offset, findings = [], 0, []
        for name, value in values.items():
            leaves, tree = jax.tree.flatten(value)
            kinds = tuple(jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
            findings += [
                f"Parameter {name!r} must hold floating-point numbers, got {kind.dtype}; make it a float or a constant."
                for kind in kinds
                if not jnp.issubdtype(kind.dtype, jnp.floating)
            ]
            shapes = tuple(biject_to(constraints[name]).inverse_shape(kind.shape) for kind in kinds)
            sites.append(Parameter(name, constraints[name], tree, kinds, shapes, offset))
            offset += sites[-1].size
        if findings:
            raise ModelError(findings)
        self.sites: tuple[Parameter, ...] = tuple(sites)
        self.size = offset

    def constrain(self, xi: jax.Array) -> dict[str, Any]:
        """``{site: value on its own constraint}``, as NumPyro's ``Predictive`` and ``substitute`` take them."""
        if jnp.shape(xi) != (self.size,):
            raise ValueError(f"ξ must be one vector of length {self.size}, got shape {jnp.shape(xi)}.")
        return {site.name: site.of(xi) for site in self.sites}

    def unconstrain(self, values: Mapping[str, Any]) -> jax.Array:
        """The inverse of :meth:`constrain`."""
        missing = [site.name for site in self.sites if site.name not in values]
        unknown = sorted(set(values) - {site.name for site in self.sites})
        if missing or unknown:
            raise ValueError(
                f"Values must be given for the parameters {[site.name for site in self.sites]}; "
                f"missing {missing}, unknown {unknown}."
            )
        dtype = jnp.result_type(float)
        parts = [part for site in self.sites for part in site.flat(values[site.name], dtype)]
        return jnp.concatenate(parts) if parts else jnp.zeros((0,), dtype)

    def arrays(self) -> list[tuple[str, int]]:
        """(name, entries of ξ) of every array, in the order of ξ; see :meth:`Parameter.arrays`."""
        return [each for site in self.sites for each in site.arrays()]

    def describe(self) -> list[dict[str, Any]]:
        """Names and shapes, JSON-serialisable: what a stored result must agree with when it is loaded."""
        return [{"name": site.name, "shapes": [list(leaf.shape) for leaf in site.leaves]} for site in self.sites]


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sites of several runs in one dict; a site met twice is one parameter, as in NumPyro's SVI."""
    together: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            together.setdefault(name, value)
    return together
