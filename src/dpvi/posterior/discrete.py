"""The discrete latents of given records, at draws of the posterior."""

from __future__ import annotations

from typing import Any

import jax

from dpvi.models.numpyro.model import NumPyroModel
from dpvi.records.arrays import as_records
from dpvi.records.frames import arguments_of


def discrete_draws(model: Any, draws: jax.Array, data: Any, key: jax.Array) -> dict[str, jax.Array]:
    """One draw of every record's discrete latents at each of ``draws``, ``{site: (num_samples, records, …)}``.

    Parameters
    ----------
    model
        The model of the run.
    draws
        Of unconstrained z, (num_samples, d).
    data
        Records in the form of the run.
    key
        A PRNG key.
    """
    if not isinstance(model, NumPyroModel):
        raise ValueError(
            "infer_discrete runs the NumPyro model of the fit, and this posterior has none; load the result with its "
            "model: Result.load(path, model=model).posterior()."
        )
    if not model.layout.enumerated:
        raise ValueError("The model has no discrete latents inside its record plate, so there are none to infer.")
    records, _ = as_records(arguments_of(model.function, data))
    if jax.tree.structure(records) != jax.tree.structure(model.structure):
        raise ValueError(
            f"data must have the form of the run's records, {jax.tree.structure(model.structure)}, got "
            f"{jax.tree.structure(records)}."
        )
    keys = jax.random.split(key, draws.shape[0])
    return jax.jit(lambda z, k: jax.lax.map(lambda each: model.draw_discrete(each[0], records, each[1]), (z, k)))(
        draws, keys
    )
