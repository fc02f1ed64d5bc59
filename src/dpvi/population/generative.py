"""Whole records drawn from a model at given parameters: what a posterior that models releases by simulation needs.

A model generates whole records when every data leaf is what an observed site observes, as it is. Leaves that no site
observes are covariates; they need a law of their own, which the user declares. Everything here works from the structure
of one record and reads none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.models.base import GenerativeModel, ModelError
from dpvi.models.dependence import depends
from dpvi.models.numpyro.discovery import batched
from dpvi.models.simulate import compiled_for_few_calls
from dpvi.population.covariate_law import CovariateLaw

_BATCH = 3


def simulate_records(
    model: GenerativeModel, z: jax.Array, key: jax.Array, num_records: int, covariate_law: CovariateLaw | None = None
) -> Any:
    """Draw records (x_1, …, x_n) from p(x | z), with the latent sites at ``z``.

    A response may depend on another response, as in y | x after x. Responses are therefore drawn in as many passes as
    there are of them, each leaf with the same key in every pass: leaves that depend on no other are right after the
    first pass, those that depend on these after the second, and so on.

    Parameters
    ----------
    model
        A model for which :func:`generative_findings` finds nothing.
    z
        Unconstrained parameters, (d,).
    key
        A PRNG key; with the same key the draws move with z as little as NumPyro's samplers let them.
    num_records
        n, how many to draw.
    covariate_law
        ``covariate_law(key, n)`` returns the leaves that no site observes, n rows each, in the order in which they
        stand in the data: one array, or a tuple, list or dict of them.

    Returns
    -------
    A pytree like the data: whole numbers and booleans in the dtypes of the model's structure, floating-point leaves in
    the default float.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def coin(y):
    ...     share = numpyro.sample("share", dist.Beta(10.0, 10.0))
    ...     with numpyro.plate("records", y.shape[0]):
    ...         numpyro.sample("y", dist.Bernoulli(share), obs=y)
    >>> from dpvi.models import NumPyroModel
    >>> model = NumPyroModel(coin, jax.ShapeDtypeStruct((), jnp.dtype("int32")))
    >>> simulate_records(model, jnp.array([9.0]), jax.random.key(0), 4).tolist()
    [1, 1, 1, 1]
    """
    check_generative(model, covariate_law)
    covariate_key, response_key = jax.random.split(key)
    batch = with_covariates(model, covariate_key, num_records, covariate_law)
    for _ in model.responses:
        batch = _respond(model, z, batch, response_key)
    return batch


def check_generative(model: Any, covariate_law: CovariateLaw | None = None) -> None:
    """Raise a :class:`ModelError` with the findings of :func:`generative_findings`, if any."""
    findings = generative_findings(model, covariate_law)
    if findings:
        raise ModelError(findings)


def generative_findings(model: Any, covariate_law: CovariateLaw | None = None) -> list[str]:
    """Why ``model`` cannot draw whole records, one sentence each; empty where it can."""
    if not isinstance(model, GenerativeModel):
        return [
            "Records can be drawn from models written for NumPyro or PyMC only, got "
            f"{type(model).__name__}: log densities alone say nothing about how to simulate."
        ]
    findings = _leaf_findings(model, covariate_law)
    found = model.drawing_findings()
    if found:
        return findings + found
    z = jax.ShapeDtypeStruct((model.dimension,), jnp.result_type(float))
    batch = batched(model.structure, _BATCH)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def draws(z: jax.Array, batch: Any, key: jax.Array) -> list[jax.Array | None]:
        drawn = model.draw_responses(z, batch, key)
        return [drawn.get(index) for index in model.responses]

    jaxpr, drawn = jax.make_jaxpr(draws, return_shape=True)(z, batch, key)
    if None in drawn:
        return [*findings, "Some observed site has a density but no sampler, so its records cannot be simulated."]
    shapes = {index: draw.shape for index, draw in zip(model.responses, drawn, strict=True)}
    return findings + (_shape_findings(model, shapes, jax.tree.leaves(batch)) or _order_findings(model, jaxpr))


def with_covariates(
    model: GenerativeModel, key: jax.Array, num_records: int, covariate_law: CovariateLaw | None
) -> Any:
    """A batch with the covariate leaves drawn from their law and zeros for the responses."""
    leaves, treedef = jax.tree.flatten(model.placeholder(num_records))
    names, _ = covariate_leaves(model)
    wanted = _covariate_indices(model)
    drawn = [] if covariate_law is None or not wanted else jax.tree.leaves(covariate_law(key, num_records))
    if len(drawn) != len(wanted):
        raise ModelError(f"covariate_law must return one array for each of {names}, got {len(drawn)} arrays.")
    for index, value in zip(wanted, drawn, strict=True):
        if jnp.shape(value) != leaves[index].shape:
            shape = tuple(leaves[index].shape[1:])
            raise ModelError(
                f"covariate_law(key, n) must return n rows of shape {shape} for each leaf of {names}, one leaf has "
                f"shape {jnp.shape(value)} at n = {num_records}."
            )
        leaves[index] = _as_leaf(value, leaves[index].dtype)
    leaves = [_as_leaf(leaf, leaf.dtype) for leaf in leaves]
    return jax.tree.unflatten(treedef, leaves)


def enumerated_response(model: GenerativeModel) -> tuple[int, np.ndarray] | None:
    """The leaf and all values of the response, where one scalar response with a small finite support is all there is.

    Then an expectation over the response is a finite sum and needs no draws. ``None`` where a record has several sites,
    the response is a vector, or its support is infinite or moves with the parameters or covariates.
    """
    if len(model.responses) != 1 or not model.alone:
        return None
    ((index, name),) = model.responses.items()
    values = model.values_of(name)
    return None if values is None else (index, values)


def prior_center(model: GenerativeModel, key: jax.Array, num_draws: int = 1000) -> jax.Array:
    """The median of each coordinate of z under the prior; zeros where the prior has no sampler (an improper one)."""
    try:
        center = np.median(prior_draws(model, key, num_draws), axis=0)  # on the host, where nothing need be compiled
    except NotImplementedError:
        return jnp.zeros(model.dimension)
    return jnp.asarray(np.where(np.isfinite(center), center, np.zeros_like(center)))


def prior_draws(model: GenerativeModel, key: jax.Array, num_draws: int) -> jax.Array:
    """Draws of z from the prior, (num_draws, d); ``NotImplementedError`` where it has no sampler."""

    def draws(key: jax.Array) -> jax.Array:
        return jax.vmap(model.draw_prior)(jax.random.split(key, num_draws))

    return compiled_for_few_calls(draws, model.dimension)(key)


def _respond(model: GenerativeModel, z: jax.Array, batch: Any, key: jax.Array) -> Any:
    """Draw every response given the others as they stand in ``batch``."""
    leaves, treedef = jax.tree.flatten(batch)
    for index, draw in model.draw_responses(z, batch, key).items():
        leaves[index] = _as_leaf(draw, leaves[index].dtype)
    return jax.tree.unflatten(treedef, leaves)


def _as_leaf(value: Any, dtype: Any) -> jax.Array:
    floating = jnp.issubdtype(dtype, jnp.floating)
    return jnp.asarray(value).astype(jnp.result_type(float) if floating else dtype)


def covariate_leaves(model: GenerativeModel) -> tuple[str, list[Any]]:
    """The leaves that no site observes: their names for a sentence, and the structure of one record's."""
    leaves = jax.tree_util.tree_leaves_with_path(model.structure)
    wanted = [leaves[index] for index in _covariate_indices(model)]
    return ", ".join(f"data{jax.tree_util.keystr(path)}" for path, _ in wanted), [leaf for _, leaf in wanted]


def covariates_of(model: GenerativeModel, records: Any) -> list[Any]:
    """The leaves of ``records`` that no site observes."""
    leaves = jax.tree.leaves(records)
    return [leaves[index] for index in _covariate_indices(model)]


def _covariate_indices(model: GenerativeModel) -> list[int]:
    count = len(jax.tree.leaves(model.structure))
    return [index for index in range(count) if index not in model.responses]


def _leaf_findings(model: GenerativeModel, covariate_law: CovariateLaw | None) -> list[str]:
    names, leaves = covariate_leaves(model)
    if not leaves or covariate_law is not None:
        return []
    return [
        f"No site observes {names} as it is (obs=leaf), so the model cannot draw whole records; declare its columns "
        "with dpvi.plan(covariates=...), or a law of it, or give it a site of its own."
    ]


def _shape_findings(model: GenerativeModel, shapes: Mapping[int, tuple[int, ...]], leaves: list[Any]) -> list[str]:
    return [
        f"A draw of site {model.responses[index]!r} has another shape than its leaf; declare all axes of a "
        "record with to_event or a plate of their own."
        for index, shape in shapes.items()
        if shape != leaves[index].shape
    ]


def _order_findings(model: GenerativeModel, jaxpr: Any) -> list[str]:
    """Responses that depend on each other in a circle (or on themselves) have no order in which to draw them."""
    responses = list(model.responses)
    num_leaves = len(jax.tree.leaves(model.structure))
    reached = np.zeros((len(responses), len(responses)), int)
    for row, index in enumerate(responses):
        flags = [False] + [leaf == index for leaf in range(num_leaves)] + [False]
        reached[row] = depends(jaxpr, flags)
    if np.any(np.linalg.matrix_power(reached, len(responses))):
        names = ", ".join(repr(name) for name in model.responses.values())
        return [f"The sites {names} depend on each other's values in a circle, so there is no order to draw them in."]
    return []
