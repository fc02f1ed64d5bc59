"""Latent sites: where each lies in the flat unconstrained vector z, and the bijection to its own support.

A site whose support is one of NumPyro's common ones with fixed bounds can be written to JSON, so a stored result
turns samples of z into parameters without the model. A support that depends on other latents cannot, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to, constraints

_PARAMETER_FREE = (
    "real",
    "real_vector",
    "real_matrix",
    "positive",
    "nonnegative",
    "softplus_positive",
    "unit_interval",
    "circular",
    "simplex",
    "l1_ball",
    "ordered_vector",
    "positive_ordered_vector",
    "corr_cholesky",
    "corr_matrix",
    "lower_cholesky",
    "softplus_lower_cholesky",
    "scaled_unit_lower_cholesky",
    "positive_definite",
    "positive_semidefinite",
)
_BOUNDED = {
    "greater_than": ("lower_bound",),
    "greater_than_eq": ("lower_bound",),
    "less_than": ("upper_bound",),
    "less_than_eq": ("upper_bound",),
    "interval": ("lower_bound", "upper_bound"),
    "open_interval": ("lower_bound", "upper_bound"),
    "zero_sum": ("event_dim",),
}


class Site(NamedTuple):
    """One latent site.

    Attributes
    ----------
    name
        The site's name in the model.
    shape
        Shape of its value on the support.
    unconstrained_shape
        Shape before the bijection; its product is the site's share of z.
    support
        A NumPyro constraint with fixed bounds, or None where only the model knows it (it depends on other latents,
        or is not among the common ones).
    offset
        Where the site begins in z.
    """

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    support: Any
    offset: int

    @property
    def size(self) -> int:
        """How many entries of z belong to the site."""
        return math.prod(self.unconstrained_shape)

    def of(self, z: jax.Array) -> jax.Array:
        """This site's unconstrained value."""
        whole = self.size == z.shape[0]
        part = z if whole else jax.lax.slice(z, (self.offset,), (self.offset + self.size,))
        return part if self.unconstrained_shape == part.shape else jnp.reshape(part, self.unconstrained_shape)


def layout(entries: Sequence[tuple[str, tuple[int, ...], tuple[int, ...], Any]]) -> tuple[Site, ...]:
    """Place ``(name, shape, unconstrained_shape, support)`` one after the other in z."""
    sites, offset = [], 0
    for name, shape, unconstrained_shape, support in entries:
        site = Site(name, tuple(shape), tuple(unconstrained_shape), support, offset)
        sites.append(site)
        offset += site.size
    return tuple(sites)


def dimension_of(sites: Sequence[Site]) -> int:
    """d, the length of z."""
    return sum(site.size for site in sites)


def is_real(support: Any) -> bool:
    """Whether the bijection of ``support`` is the identity, so that it needs neither transform nor log-determinant."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return isinstance(support, type(constraints.real))


class StaticBijections:
    """``constrain`` and ``unconstrain`` for sites with fixed supports; needs neither model nor records.

    Parameters
    ----------
    sites
        Latent sites in the order of z. Every support must be known: see :func:`needs_model`.
    """

    def __init__(self, sites: Sequence[Site]):
        unknown = [site.name for site in sites if site.support is None]
        if unknown:
            raise ValueError(
                f"The support of {', '.join(map(repr, unknown))} is known to the model only; "
                "pass the model to turn unconstrained samples into parameters."
            )
        self.sites = tuple(sites)
        self.dimension = dimension_of(self.sites)

    def constrain(self, z: jax.Array) -> dict[str, jax.Array]:
        """Map one unconstrained vector to ``{site: value on its own support}``."""
        check_vector(z, self.dimension)
        return {site.name: _forward(site.support, site.of(z)) for site in self.sites}

    def unconstrain(self, values: Mapping[str, Any]) -> jax.Array:
        """The inverse of :meth:`constrain`."""
        check_values(values, self.sites)
        parts = [
            _backward(site.support, jnp.asarray(values[site.name], dtype=jnp.result_type(float))) for site in self.sites
        ]
        return join(parts)


def needs_model(sites: Sequence[Site]) -> bool:
    """Whether some support cannot be rebuilt without the model."""
    return any(site.support is None for site in sites)


def join(parts: Sequence[jax.Array]) -> jax.Array:
    """Concatenate unconstrained values into z."""
    flat = [jnp.ravel(part) for part in parts]
    return flat[0] if len(flat) == 1 else jnp.concatenate(flat)


def check_vector(z: jax.Array, dimension: int) -> None:
    """Refuse a z of the wrong length, before a reshape would say it less clearly."""
    if jnp.shape(z) != (dimension,):
        raise ValueError(
            f"z must be one vector of length {dimension}, got shape {jnp.shape(z)}; use jax.vmap for several."
        )


def check_values(values: Mapping[str, Any], sites: Sequence[Site]) -> None:
    """Refuse values that miss a site or have another shape."""
    for site in sites:
        if site.name not in values:
            raise ValueError(f"values must hold every latent site, {site.name!r} is missing.")
        if jnp.shape(values[site.name]) != site.shape:
            raise ValueError(
                f"The value of site {site.name!r} must have shape {site.shape}, got {jnp.shape(values[site.name])}."
            )


def _forward(support: Any, value: jax.Array) -> jax.Array:
    return value if is_real(support) else biject_to(support)(value)


def _backward(support: Any, value: jax.Array) -> jax.Array:
    return value if is_real(support) else biject_to(support).inv(value)


def sites_to_dict(sites: Sequence[Site]) -> list[dict[str, Any]]:
    """A JSON-serialisable list; a site only the model can constrain is stored with support None."""
    return [
        {
            "name": site.name,
            "shape": list(site.shape),
            "unconstrained_shape": list(site.unconstrained_shape),
            "support": support_to_dict(site.support),
        }
        for site in sites
    ]


def sites_from_dict(stored: Sequence[Mapping[str, Any]]) -> tuple[Site, ...]:
    """The inverse of :func:`sites_to_dict`."""
    return layout(
        [
            (
                entry["name"],
                tuple(entry["shape"]),
                tuple(entry["unconstrained_shape"]),
                support_from_dict(entry["support"]),
            )
            for entry in stored
        ]
    )


def support_parameters(support: Any) -> list[Any] | None:
    """The bounds a common support carries, or None where the support is not one that can be stored."""
    kind = _kind(support)
    if kind is not None:
        return [getattr(support, name) for name in _BOUNDED.get(kind, ())]
    return support_parameters(support.base_constraint) if isinstance(support, constraints.independent) else None


def with_parameters(support: Any, values: Sequence[Any]) -> Any:
    """A copy of a common support with its bounds replaced by ``values``."""
    kind = _kind(support)
    if kind is not None:
        return getattr(constraints, kind)(*values) if kind in _BOUNDED else support
    base = with_parameters(support.base_constraint, values)
    return constraints.independent(base, support.reinterpreted_batch_ndims)


def support_to_dict(support: Any) -> dict[str, Any] | None:
    """A JSON-serialisable form of a common support, None for None."""
    if support is None:
        return None
    kind = _kind(support)
    if kind is None:
        base = support_to_dict(support.base_constraint)
        return {"kind": "independent", "base": base, "event_dimensions": int(support.reinterpreted_batch_ndims)}
    values = {name: np.asarray(getattr(support, name)).tolist() for name in _BOUNDED.get(kind, ())}
    return {"kind": kind, **values}


def support_from_dict(stored: Mapping[str, Any] | None) -> Any:
    """The inverse of :func:`support_to_dict`."""
    if stored is None:
        return None
    kind = stored["kind"]
    if kind == "independent":
        return constraints.independent(support_from_dict(stored["base"]), stored["event_dimensions"])
    if kind in _PARAMETER_FREE:
        return getattr(constraints, kind)
    if kind in _BOUNDED:
        values = [stored[name] for name in _BOUNDED[kind]]
        return getattr(constraints, kind)(*(np.asarray(v) if isinstance(v, list) else v for v in values))
    raise ValueError(f"The stored support {kind!r} is unknown to this version; pass the model to constrain samples.")


def _kind(support: Any) -> str | None:
    # The exact class decides: subclasses such as softplus_positive carry another bijection than their parent.
    for name in _PARAMETER_FREE:
        if type(support) is type(getattr(constraints, name)):
            return name
    for name in _BOUNDED:
        if type(support) is getattr(constraints, name):
            return name
    return None
