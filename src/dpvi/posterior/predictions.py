"""Predictions of a model that is no NumPyro function: every response drawn at new covariates, draw by draw."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.models.base import GenerativeModel
from dpvi.records.arrays import as_records
from dpvi.records.frames import column, column_names, is_table


def drawn_responses(
    model: GenerativeModel, key: jax.Array, draws: Mapping[str, jax.Array], data: Any = None, **columns: Any
) -> dict[str, jax.Array]:
    """``{response: (num_samples, n, …)}``, with the latents at ``draws`` and covariates as in ``data``.

    Parameters
    ----------
    model
        A model whose records are a dict of arrays.
    key
        A PRNG key.
    draws
        ``{site: (num_samples, …)}`` on the sites' own supports.
    data, columns
        The covariates: a dict, a table or arrays by name. Responses among them are left out.

    Raises
    ------
    ValueError
        Where a covariate is missing, or there is none from which the number of records could be told.
    """
    names = list(model.structure)
    responses = {names[index]: site for index, site in model.responses.items()}
    given = _covariates(names, responses, data, columns)
    num_records = len(next(iter(given.values())))
    batch = dict(model.placeholder(num_records))
    for name, value in given.items():
        batch[name] = jnp.asarray(as_records(value if hasattr(value, "shape") else np.asarray(value))[0]).astype(
            batch[name].dtype
        )

    def one(values: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
        z, filled = model.unconstrain(values), dict(batch)
        for _ in responses:  # a response may follow from another
            for index, draw in model.draw_responses(z, filled, key).items():
                filled[names[index]] = draw.astype(batch[names[index]].dtype)
        return {site: filled[name] for name, site in responses.items()}

    keys = jax.random.split(key, len(next(iter(draws.values()))))
    return jax.jit(jax.vmap(one))(dict(draws), keys)


def _covariates(
    names: list[str], responses: Mapping[str, str], data: Any, columns: Mapping[str, Any]
) -> dict[str, Any]:
    """The arrays that are given and are no response, all of them."""
    wanted = [name for name in names if name not in responses]
    if is_table(data):
        data = {name: column(data, name) for name in wanted if name in column_names(data)}
    if not isinstance(data, Mapping | NoneType):
        raise ValueError(f"predict needs a dict of arrays by name, {', '.join(map(repr, wanted))}, or a table of them.")
    given = {name: value for name, value in {**(data or {}), **columns}.items() if value is not None}
    missing = [name for name in wanted if name not in given]
    if not wanted:
        raise ValueError("This model has no covariates, so nothing says how many records to predict; use sample().")
    if missing:
        raise ValueError(f"predict needs the covariates {', '.join(map(repr, missing))} of the model, too.")
    return {name: given[name] for name in wanted}
