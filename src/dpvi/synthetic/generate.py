"""Synthetic data sets from a posterior: one draw of the parameters each, then records given the draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared import validation
from dpvi.declared.guarantee import Guarantee
from dpvi.models.base import GenerativeModel
from dpvi.models.numpyro import as_model
from dpvi.population.generative import simulate_records
from dpvi.posterior.posterior import Posterior, given_or_fresh_key
from dpvi.posterior.result import Result
from dpvi.synthetic import files
from dpvi.table import Schema

Records = Callable[[int], dict[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticData:
    """Synthetic data sets, made when they are asked for: memory holds one at a time, and the same one every time.

    Attributes
    ----------
    schema
        The schema of every data set.
    num_datasets, num_records
        How many data sets, and how many records in each.
    method
        How the posterior was computed.
    guarantee
        The privacy statement the data sets inherit.
    """

    schema: Schema
    num_datasets: int
    num_records: int
    method: str
    guarantee: Guarantee
    draw: Records

    def __len__(self) -> int:
        return self.num_datasets

    def __repr__(self) -> str:
        return f"SyntheticData({self.num_datasets} data sets of {self.num_records} records, {self.method!r} posterior)"

    def encoded(self, index: int) -> dict[str, np.ndarray]:
        """The leaves of data set ``index``, counted from 0."""
        if not 0 <= index < self.num_datasets:
            raise IndexError(f"Data sets are counted from 0 to {self.num_datasets - 1}, got {index}.")
        return {leaf: np.asarray(value) for leaf, value in self.draw(index).items()}

    def table(self, index: int, to: str = "pandas") -> Any:
        """Data set ``index`` as a ``"pandas"`` or ``"polars"`` frame, ``"arrow"`` table or dict of ``"columns"``."""
        return self.schema.decode(self.encoded(index), to=to)

    def tables(self, to: str = "pandas") -> Iterator[Any]:
        """All data sets, one after the other."""
        return (self.table(index, to) for index in range(self.num_datasets))

    def save(self, directory: str | Path, format: str = "csv") -> None:
        """Write one ``csv`` or ``parquet`` file per data set, the schema and the guarantee into a new directory."""
        files.save_each(self, Path(directory), format)

    def save_long(self, path: str | Path, dataset_column: str = "dataset") -> None:
        """Write one ``.csv`` or ``.parquet`` file with all data sets below each other, numbered by one more column."""
        files.save_long(self, Path(path), dataset_column)


def synthesize(
    source: Result | Posterior,
    model: Any,
    schema: Schema,
    *,
    num_records: int | None = None,
    num_datasets: int = 100,
    key: jax.Array | None = None,
) -> SyntheticData:
    """Draw synthetic data sets, each with parameters of its own from the posterior.

    Parameters
    ----------
    source
        A result (its default posterior is used) or a posterior, such as ``result.posterior("score")``. A result that
        was loaded from a file will do: the records are not needed.
    model
        The model that was fitted. A :class:`~dpvi.models.table.TableModel`, anything with
        ``draw_records(parameters, key, num_records)``, or a NumPyro function that observes every leaf of the encoded
        table as it is (``obs=leaf``).
    schema
        The schema of the table that was fitted.
    num_records
        How many records each data set has. The true number is private under add/remove adjacency, so it is not known
        here: choose a public number, unless the plan of a result declares it.
    num_datasets
        M. Pooled intervals have at most about M degrees of freedom.
    key
        A PRNG key; the same key gives the same data sets. By default a fresh one.

    Returns
    -------
    SyntheticData
        To analyse with :func:`~dpvi.synthetic.pool` or :func:`~dpvi.synthetic.pool_glm`, or to save.

    Guarantees
    ----------
    Post-processing of the result: the data sets have its (ε, δ), however many are drawn.
    """
    posterior = source.posterior() if isinstance(source, Result) else source
    if not isinstance(posterior, Posterior):
        raise TypeError(f"source must be a Result or a Posterior, got {type(source).__name__}.")
    if not isinstance(schema, Schema):
        raise TypeError(
            f"schema must be the dpvi.Schema of the table that was fitted, such as Schema.load('schema.toml'), got "
            f"{type(schema).__name__}."
        )
    records = _num_records(source, num_records)
    count = validation.whole_number("num_datasets", num_datasets)
    posterior_key, records_key = jax.random.split(given_or_fresh_key(key))
    maker = _from_companion if hasattr(model, "draw_records") else _from_sites
    draw = maker(posterior, model, schema, count, records, posterior_key, records_key)
    return SyntheticData(schema, count, records, posterior.method, posterior.guarantee, draw)


def _num_records(source: Any, num_records: int | None) -> int:
    if num_records is None:
        declared = source.plan.num_records if isinstance(source, Result) else None
        if declared is None:
            raise ValueError(
                "num_records must be given: the number of records is private, so neither result nor posterior knows "
                "it; choose a public number, such as the size a publication has named."
            )
        return int(declared)
    return validation.whole_number("num_records", num_records)


def _from_companion(
    posterior: Posterior, model: Any, schema: Schema, num_datasets: int, num_records: int, first: Any, second: Any
) -> Records:
    """Data sets by the model's own ``draw_records``."""
    own = getattr(model, "schema", schema)
    if own.to_dict() != schema.to_dict():
        raise ValueError("The model was built for another schema; pass the schema the records were encoded with.")
    parameters = {site: np.asarray(draws) for site, draws in posterior.sample(num_datasets, first).items()}

    def draw(index: int) -> dict[str, Any]:
        chosen = {site: draws[index] for site, draws in parameters.items()}
        return model.draw_records(chosen, jax.random.fold_in(second, index), num_records)

    return draw


def _from_sites(
    posterior: Posterior, model: Any, schema: Schema, num_datasets: int, num_records: int, first: Any, second: Any
) -> Records:
    """Data sets by the sample sites of a NumPyro model; masks that no site observes say that nothing is missing."""
    structure = {leaf: jax.ShapeDtypeStruct((), _dtype(dtype)) for leaf, dtype in schema.leaves.items()}
    ready = as_model(model, structure)
    if not isinstance(ready, GenerativeModel):
        raise TypeError(
            "model must be able to draw records: a NumPyro function, a PyMC model or a TableModel, got "
            f"{type(model).__name__}."
        )
    responses = set(ready.responses)
    masks = [index for index, leaf in enumerate(sorted(structure)) if leaf not in schema.columns]
    free = [index for index in masks if index not in responses]

    def complete(_: jax.Array, count: int) -> list[jax.Array]:
        return [jnp.ones(count, bool) for _ in free]

    law = complete if free else None
    simulate = jax.jit(lambda z, key: simulate_records(ready, z, key, num_records, law))
    z = posterior.sample_unconstrained(num_datasets, first)
    if z.shape[1] != ready.dimension:
        raise ValueError(
            f"The posterior has {z.shape[1]} unconstrained parameters, the model {ready.dimension}; pass the model "
            "that was fitted."
        )
    return lambda index: simulate(z[index], jax.random.fold_in(second, index))


def _dtype(dtype: np.dtype) -> Any:
    return jnp.dtype(jnp.result_type(float)) if dtype.kind == "f" else jnp.dtype(dtype)
