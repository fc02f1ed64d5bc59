"""What has no private fit in a PyMC model, one sentence each that says what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dpvi.models.pymc.lazily import imported, traversal

_SERIES = ("RandomWalk", "AutoRegressive", "GARCH", "EulerMaruyama")
_FEW = 8  # records so few that other arrays are as long by accident


def findings_of(model: Any, record_dim: str) -> list[str]:
    """Everything that is seen before a graph is built."""
    if not isinstance(record_dim, str):
        raise TypeError(f"record_dim must be the name of the records' dimension, got {type(record_dim).__name__}.")
    findings = _data_findings(model, record_dim) + _potential_findings(model)
    if not model.observed_RVs:
        findings.append("The model observes nothing: give the variable of the responses observed=.")
    findings += [each for rv in model.free_RVs for each in _free_findings(model, rv, record_dim)]
    findings += [each for rv in model.observed_RVs for each in _observed_findings(model, rv, record_dim)]
    return findings


def array_findings(constants: Mapping[str, np.ndarray], lengths: Iterable[int | None], record_dim: str) -> list[str]:
    """Arrays of the graphs with as many rows as the records that the model holds, and more than a few."""
    known = _more_than_a_few(lengths)
    return [
        f"The model holds {name!r}, an array with as many rows as the records, outside of them. It would count in "
        f"full, without noise, whatever epsilon is. Make it pm.Data(..., dims={record_dim!r}), and an argument of fit."
        for name, value in constants.items()
        if known & set(value.shape)
    ]


def latent_findings(model: Any, lengths: Iterable[int | None]) -> list[str]:
    """Latents with as many entries as there are records, and more than a few."""
    known = _more_than_a_few(lengths)
    return [
        _of_each_record(rv.name, "as many entries as there are records")
        for rv in model.free_RVs
        if known & set(rv.type.shape)
    ]


def _more_than_a_few(lengths: Iterable[int | None]) -> set[int]:
    return {length for length in lengths if length is not None and length > _FEW}


def _of_each_record(name: str, what: str) -> str:
    return (
        f"Latent {name!r} has {what}: every record would have a parameter of its own, which its own data alone decide. "
        "Integrate it out (pm.NegativeBinomial for a Gamma-Poisson, pm.StudentT for a Normal with Gamma precision, "
        "pm.Mixture for a class), or write the model for NumPyro with a guide."
    )


def _data_findings(model: Any, record_dim: str) -> list[str]:
    """Arrays of the records that have them along another axis, and models that have none."""
    SharedVariable = imported("pytensor.compile.sharedvalue").SharedVariable

    dims: dict[str, tuple[str, ...]] = {
        data.name: tuple(model.named_vars_to_dims.get(data.name) or ()) for data in model.data_vars
    }
    of_records = [name for name, each in dims.items() if record_dim in each]
    findings = [
        f"pm.Data {name!r} has {record_dim!r} along axis {dims[name].index(record_dim)}; records must be rows: "
        "transpose it, and name its dimensions in that order."
        for name in of_records
        if dims[name][0] != record_dim or dims[name].count(record_dim) > 1
    ]
    known = {each for names in (*dims.values(), *model.named_vars_to_dims.values()) for each in names or ()}
    raw = any(not isinstance(base_of(model.rvs_to_values[rv]), SharedVariable) for rv in model.observed_RVs)
    if record_dim not in known and not raw:
        there = ", ".join(repr(each) for each in sorted(map(str, known))) or "none"
        findings.append(
            f"No array of the model has the dimension {record_dim!r} (there is {there}). Give the records' arrays and "
            f"the observed variables dims: pm.Data('x', x, dims={record_dim!r}), pm.Normal(..., dims={record_dim!r})."
        )
    return findings


def _potential_findings(model: Any) -> list[str]:
    return [
        f"Potential {each.name!r} adds a term that is neither a prior nor one record's: what protects people is that "
        "each has a term of its own. Write a density of records as pm.CustomDist(..., logp=..., observed=...), and a "
        "prior as a distribution."
        for each in model.potentials
    ]


def _free_findings(model: Any, rv: Any, record_dim: str) -> list[str]:
    name, op = rv.name, type(rv.owner.op).__name__
    if "PartialObserved" in op or f"{name.removesuffix('_unobserved')}_observed" in model.named_vars:
        return [
            f"{name!r} are missing values of an observed variable, a latent of each record; leave out the records that "
            "lack them, or write the model for NumPyro with a mask."
        ]
    if record_dim in (model.named_vars_to_dims.get(name) or ()):
        return [_of_each_record(name, "the dimension of the records")]
    if np.dtype(rv.dtype).kind in "iub":
        return [
            f"Latent {name!r} is discrete, which variational inference does not fit; sum over its values, as "
            "pm.Mixture does, or make it a continuous parameter."
        ]
    if "Minibatch" in op:
        return [_minibatch(name)]
    return []


def _observed_findings(model: Any, rv: Any, record_dim: str) -> list[str]:
    Constant = imported("pytensor.graph.basic").Constant

    name, op = rv.name, type(rv.owner.op).__name__
    value = model.rvs_to_values[rv]
    if "Minibatch" in op or _draws_minibatches([value, rv]):
        return [_minibatch(name)]
    if "PartialObserved" in op:
        return []  # its other half says so
    base = base_of(value)
    if base not in model.data_vars and not isinstance(base, Constant):
        return [
            f"{name!r} observes a transformed array, so it is not known which array holds its records; pass the array "
            "of pm.Data itself as observed=, and transform it before."
        ]
    if base.type.ndim == 0:
        return [f"{name!r} observes a single number, which is no record; observe an array with one row per record."]
    return _row_findings(model, rv, base, record_dim)


def _row_findings(model: Any, rv: Any, base: Any, record_dim: str) -> list[str]:
    """Observed variables whose rows are no records, or not independent."""
    for holder in (rv.name, base.name):
        dims = tuple(model.named_vars_to_dims.get(holder) or ())
        if dims and dims[0] != record_dim:
            return [
                f"{holder!r} is observed, and its first dimension is {dims[0]!r}: rows of what is observed must be "
                f"records. Transpose it, or name its dimensions ({record_dim!r}, ...)."
            ]
    op = type(rv.owner.op).__name__
    if rv.ndim <= support_dimensions(rv):
        kind = "a time series" if op.startswith(_SERIES) else "one multivariate density, such as a Gaussian process'"
        return [
            f"Observed variable {rv.name!r} ({op.removesuffix('RV')}) is {kind} over all records: records depend on "
            "each other, and one person's influence could not be bounded. Records must be independent given the "
            "parameters; where each record is a series of its own, give it the shape (records, time)."
        ]
    return []


def _draws_minibatches(variables: list[Any]) -> bool:
    ancestors = traversal().ancestors
    return any("Minibatch" in type(each.owner.op).__name__ for each in ancestors(variables) if each.owner is not None)


def _minibatch(name: str) -> str:
    return (
        f"{name!r} is scored on minibatches (pm.Minibatch or total_size=). Batches are drawn here, by the privacy "
        "mechanism and secretly: pass whole arrays to pm.Data and leave out total_size."
    )


def base_of(value: Any) -> Any:
    """The variable that an observed value is, without conversions of its dtype."""
    Cast = imported("pytensor.scalar.basic").Cast
    Elemwise = imported("pytensor.tensor.elemwise").Elemwise

    while value.owner is not None and isinstance(value.owner.op, Elemwise):
        if not isinstance(value.owner.op.scalar_op, Cast):
            break
        value = value.owner.inputs[0]
    return value


def support_dimensions(rv: Any) -> int:
    """How many of the last axes of a random variable belong to one draw."""
    return int(getattr(rv.owner.op, "ndim_supp", 0))
