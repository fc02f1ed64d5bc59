"""What a PyMC model consists of: its records, free and observed variables, and the graphs of their densities.

The graphs that leave this module have placeholders where the PyMC model holds records, their number and its sources of
random numbers, and constants where it holds anything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.distributions import constraints

from dpvi.models.base import ModelError
from dpvi.models.pymc.jaxified import Graphs, Program, inputs_of
from dpvi.models.pymc.lazily import imported, traversal
from dpvi.models.pymc.refusals import array_findings, base_of, findings_of, latent_findings, support_dimensions
from dpvi.models.sites import Site, layout
from dpvi.records.arrays import structure_of

_MAX_SUPPORT = 256


class Leaf(NamedTuple):
    """An array of the records, and what stands for it in the graphs."""

    name: str
    held: Any  # the variable of the PyMC model
    placeholder: Any
    num_records: int | None  # of what the model holds, to tell other arrays of records


class Read(NamedTuple):
    """A PyMC model without its records."""

    record_dim: str
    structure: dict[str, jax.ShapeDtypeStruct]
    sites: tuple[Site, ...]
    observed: tuple[str, ...]
    responses: dict[int, str]
    deterministics: tuple[str, ...]
    finite: dict[str, np.ndarray]  # by observed variable, all values that it can take
    constants: dict[str, np.ndarray]
    program: Program


def read(model: Any, record_dim: str) -> Read:
    """Take a PyMC model apart, or say in a :class:`ModelError` why it has no private fit."""
    findings = findings_of(model, record_dim)
    if findings:
        raise ModelError(findings)
    leaves = _leaves(model, record_dim)
    lengths = [leaf.num_records for leaf in leaves]
    findings = latent_findings(model, lengths)
    if findings:
        raise ModelError(findings)
    detached = _Detached(model, leaves, record_dim)
    try:
        program = detached.program()
    except Exception as error:  # PyMC's own text may hold numbers of the graph
        raise ModelError(
            f"PyMC does not find the density of this model ({type(error).__name__}); model.logp() says why. Every "
            "random variable needs a name in the model, and every observed one a density."
        ) from None
    findings = array_findings(detached.constants, lengths, record_dim)
    if findings:
        raise ModelError(findings)
    return Read(
        record_dim,
        _structure(leaves),
        layout([(rv.name, *_shapes(model, rv, detached), _support(model, rv)) for rv in model.free_RVs]),
        tuple(rv.name for rv in model.observed_RVs),
        _responses(model, leaves),
        tuple(detached.deterministics),
        {rv.name: values for rv in model.observed_RVs if (values := _finite(rv)) is not None},
        detached.constants,
        program,
    )


def _leaves(model: Any, record_dim: str) -> list[Leaf]:
    """Arrays of the records, in the order of their names."""
    held = {
        data.name: data for data in model.data_vars if record_dim in (model.named_vars_to_dims.get(data.name) or ())
    }
    for rv in model.observed_RVs:
        base = base_of(model.rvs_to_values[rv])
        if base not in held.values():
            held[base.name if base in model.data_vars else rv.name] = base
    return [_leaf(name, held[name]) for name in sorted(held)]


def _leaf(name: str, held: Any) -> Leaf:
    pt = imported("pytensor.tensor")

    known = held.data if hasattr(held, "data") else held.get_value(borrow=True)
    shape = np.shape(known)
    placeholder = pt.tensor(name=name, dtype=held.type.dtype, shape=(None, *shape[1:]))
    return Leaf(name, held, placeholder, shape[0])


def _structure(leaves: Sequence[Leaf]) -> dict[str, jax.ShapeDtypeStruct]:
    return structure_of(
        {leaf.name: np.zeros((2, *leaf.placeholder.type.shape[1:]), leaf.placeholder.type.dtype) for leaf in leaves}
    )


def _responses(model: Any, leaves: Sequence[Leaf]) -> dict[int, str]:
    index = {id(leaf.held): number for number, leaf in enumerate(leaves)}
    return {index[id(base_of(model.rvs_to_values[rv]))]: rv.name for rv in model.observed_RVs}


class _Detached:
    """The graphs of a model, with placeholders for its records."""

    def __init__(self, model: Any, leaves: Sequence[Leaf], record_dim: str) -> None:
        pt = imported("pytensor.tensor")

        self._model, self._leaves = model, leaves
        self._length = pt.lscalar("number of records")
        self._replaced: dict[Any, Any] = {leaf.held: leaf.placeholder for leaf in leaves}
        length = model.dim_lengths.get(record_dim)
        if length is not None and length.owner is None:
            self._replaced[length] = self._length.astype(length.type.dtype)
        self.constants: dict[str, np.ndarray] = {}
        self.deterministics: list[str] = []

    def program(self) -> Program:
        """All graphs that a model is asked for."""
        densities = imported("pymc.logprob.basic").transformed_conditional_logp
        by_values = imported("pymc.logprob.utils").replace_rvs_by_values
        model, values = self._model, list(self._model.value_vars)
        free, observed = list(model.free_RVs), self._resized()
        known = {rv: model.rvs_to_values[rv] for rv in free} | observed
        transforms = {rv: model.rvs_to_transforms.get(rv) for rv in known}
        terms = densities([*free, *observed], rvs_to_values=known, rvs_to_transforms=transforms, jacobian=True)
        given = [rv.type(name=rv.name) for rv in free]
        draws = by_values([self._again(rv) for rv in observed], rvs_to_values=known, rvs_to_transforms=transforms)
        self.deterministics, derived = self._derived()
        return Program(
            {
                "outside": self._graphs(values, [*model.replace_rvs_by_values(free), *terms[: len(free)]]),
                "terms": self._graphs(values, terms[len(free) :]),
                "inverse": self._graphs(given, self._inverse(given)),
                "prior draws": self._graphs([], self._inverse(free)),
                "responses": self._graphs(values, draws),
                "deterministics": self._graphs(values, derived),
            }
        )

    def _resized(self) -> dict[Any, Any]:
        """The observed variables with a symbolic number of records, in the model's order, and what they observe."""
        graph_replace = imported("pytensor.graph.replace").graph_replace
        values, resized = self._values(), {}
        for rv in self._model.observed_RVs:
            others = {other: value for other, value in values.items() if other is not rv}  # one may follow from another
            (new,) = graph_replace([self._again(rv)], others, strict=False)
            new.name = rv.name
            resized[new] = values[rv]
        return resized

    def _again(self, rv: Any) -> Any:
        """The same variable, drawn anew once for each record."""
        change_dist_size = imported("pymc.distributions.shape_utils").change_dist_size
        others = range(1, rv.ndim - support_dimensions(rv))
        rest = [rv.type.shape[axis] or rv.shape[axis] for axis in others]
        return change_dist_size(rv, (self._length, *rest))

    def _values(self) -> dict[Any, Any]:
        """What each observed variable observes: placeholders, in the dtypes of the model."""
        placeholders = {id(leaf.held): leaf.placeholder for leaf in self._leaves}
        found = {}
        for rv in self._model.observed_RVs:
            value = self._model.rvs_to_values[rv]
            placeholder = placeholders[id(base_of(value))]
            found[rv] = placeholder if placeholder.dtype == value.dtype else placeholder.astype(value.dtype)
        return found

    def _inverse(self, values: Sequence[Any]) -> list[Any]:
        """Unconstrained values of the free variables, where these are ``values``."""
        clone_replace = imported("pytensor.graph.replace").clone_replace

        model, unconstrained = self._model, []
        for rv, value in zip(model.free_RVs, values, strict=True):
            transform = model.rvs_to_transforms[rv]
            unconstrained.append(value if transform is None else transform.forward(value, *rv.owner.inputs))
        others = {rv: value for rv, value in zip(model.free_RVs, values, strict=True) if rv is not value}
        return clone_replace(unconstrained, replace=others, rebuild_strict=False) if others else unconstrained

    def _derived(self) -> tuple[list[str], list[Any]]:
        """Deterministics of parameters alone: no record, no number of records and no draw is in them."""
        graphs = self._model.replace_rvs_by_values(list(self._model.deterministics))
        names, kept = [], []
        for deterministic, graph in zip(self._model.deterministics, graphs, strict=True):
            found = {id(each) for each in inputs_of([graph])}
            if not found & {id(each) for each in self._replaced}:
                names.append(deterministic.name)
                kept.append(graph)
        return names, kept

    def _graphs(self, inputs: list[Any], outputs: list[Any]) -> Graphs:
        """With placeholders for all that belongs to records, and constants for other arrays."""
        pt = imported("pytensor.tensor")
        SharedVariable = imported("pytensor.compile.sharedvalue").SharedVariable
        Constant = imported("pytensor.graph.basic").Constant
        clone_replace = imported("pytensor.graph.replace").clone_replace
        RandomType = imported("pytensor.tensor.random.type").RandomType

        replaced = dict(self._replaced)
        for each in inputs_of(outputs) if outputs else ():
            if each in replaced:
                continue
            if isinstance(each.type, RandomType):
                replaced[each] = each.type()
            elif isinstance(each, SharedVariable):
                value = each.get_value()
                replaced[each] = pt.constant(value, dtype=each.type.dtype)
                self._keep(each.name, value)
            elif isinstance(each, Constant):
                self._keep(each.name, each.data)
        replaced |= {each: each.owner.inputs[0] for each in traversal().ancestors(outputs) if self._claims_rows(each)}
        known = set(traversal().ancestors(outputs))
        replaced = {old: new for old, new in replaced.items() if old in known}
        new = clone_replace(outputs, replace=replaced, rebuild_strict=False) if replaced else outputs
        return Graphs(inputs, [leaf.placeholder for leaf in self._leaves], self._length, new)

    def _claims_rows(self, variable: Any) -> bool:
        """Whether a node says of an array of records that it has as many rows as the model held."""
        node = variable.owner
        if node is None or type(node.op).__name__ != "SpecifyShape":
            return False
        return any(base_of(node.inputs[0]) is leaf.placeholder for leaf in self._leaves)

    def _keep(self, name: str | None, value: Any) -> None:
        """Note an array that the model holds beside its records."""
        if (
            not isinstance(value, np.ndarray)
            or value.size < 2
            or any(value is each for each in self.constants.values())
        ):
            return
        if not any(value.shape == each.shape and np.array_equal(value, each) for each in self.constants.values()):
            self.constants[name or f"array {len(self.constants) + 1}"] = value


def _shapes(model: Any, rv: Any, detached: _Detached) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of a free variable and of its unconstrained value."""
    transform = model.rvs_to_transforms[rv]
    inner = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
    return _known_shape(rv), _known_shape(inner)


def _known_shape(variable: Any) -> tuple[int, ...]:
    """The shape of a variable that no record has a part in."""
    if None not in variable.type.shape:
        return tuple(variable.type.shape)
    constant_fold = imported("pymc.pytensorf").constant_fold
    SharedVariable = imported("pytensor.compile.sharedvalue").SharedVariable
    clone_replace = imported("pytensor.graph.replace").clone_replace
    pt = imported("pytensor.tensor")
    shape = variable.shape
    fixed = {
        each: pt.constant(each.get_value(), dtype=each.type.dtype)
        for each in inputs_of([shape])
        if isinstance(each, SharedVariable) and hasattr(each.type, "dtype")
    }
    (folded,) = constant_fold([clone_replace([shape], replace=fixed, rebuild_strict=False)[0]])
    return tuple(int(size) for size in folded)


def _support(model: Any, rv: Any) -> Any:
    """NumPyro's constraint with the same bijection as PyMC's transform, so that results load without the model."""
    Interval = imported("pymc.distributions.transforms").Interval
    LogOddsTransform = imported("pymc.logprob.transforms").LogOddsTransform
    LogTransform = imported("pymc.logprob.transforms").LogTransform

    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return constraints.real
    if type(transform) is LogTransform:
        return constraints.positive
    if type(transform) is LogOddsTransform:
        return constraints.unit_interval
    if isinstance(transform, Interval):
        lower, upper = (_number(each) for each in transform.args_fn(*rv.owner.inputs))
        if lower is not None and upper is not None and math.isfinite(lower) and math.isfinite(upper):
            return constraints.interval(lower, upper)
    return None


def _number(variable: Any) -> float | None:
    data = getattr(variable, "data", variable)
    return float(np.ravel(data)[0]) if data is not None and np.size(data) == 1 and not hasattr(data, "owner") else None


def _finite(rv: Any) -> np.ndarray | None:
    """All values of an observed scalar, where they are few and fixed."""
    basic = imported("pytensor.tensor.random").basic

    op = rv.owner.op
    if rv.ndim != 1:
        return None
    if isinstance(op, basic.BernoulliRV):
        return np.arange(2)
    parameters: Any = op.dist_params(rv.owner) if hasattr(op, "dist_params") else ()
    if isinstance(op, basic.CategoricalRV):
        count = parameters[0].type.shape[-1]
    elif isinstance(op, basic.BinomialRV | basic.BetaBinomialRV):
        total = _number(parameters[0]) if hasattr(parameters[0], "data") else None
        count = None if total is None else int(total) + 1
    else:
        return None
    return np.arange(count) if count is not None and count <= _MAX_SUPPORT else None
