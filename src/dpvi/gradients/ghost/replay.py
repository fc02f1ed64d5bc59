"""A per-record term as a flat list of equations, evaluated again with zeros added where gradients are wanted.

A tap is a zero added to a value. The gradient with respect to it is the error back-propagated to that value, and
nothing else has to be differentiated: parameters enter as constants, so no gradient of their size is ever formed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

_CALLS = ("jit", "pjit", "closed_call")  # calls that mean no more than their body


class Taps(NamedTuple):
    """Zeros added to the outputs of some equations and to some variables; or the gradients with respect to them."""

    outputs: tuple[jax.Array, ...]
    variables: tuple[jax.Array, ...]


class Places(NamedTuple):
    """Where taps sit."""

    reads: Mapping[int, int]  # equation whose output has a tap: which of its operands to hand out, in order
    variables: tuple[Any, ...]
    moves: frozenset[int]  # equations that only move parameters: what they make has taps of its own


def flatten(term: Callable[[jax.Array, Any], jax.Array], vector: jax.Array, record: Any) -> core.ClosedJaxpr:
    """The jaxpr of ``term`` with the bodies of its calls written out; the first input is the parameter vector.

    What carries a derivative rule of its own (``custom_jvp``) or repeats (loops) stays one equation.
    """
    nested = jax.make_jaxpr(term)(vector, record)
    if [output.shape for output in nested.out_avals] != [()]:
        shapes = [output.shape for output in nested.out_avals]
        raise ValueError(f"term must return one number per record, got arrays of shapes {shapes}: add its parts up.")
    leaves = jax.tree.leaves((vector, record))
    return jax.make_jaxpr(lambda *values: _written_out(nested.jaxpr, nested.consts, values))(*leaves)


def zero_taps(closed: core.ClosedJaxpr, places: Places) -> Taps:
    """The taps of ``places``, all zero."""

    def zeros(variable: Any) -> jax.Array:
        return jnp.zeros(variable.aval.shape, variable.aval.dtype)

    outputs = tuple(zeros(closed.jaxpr.eqns[index].outvars[0]) for index in places.reads)
    return Taps(outputs, tuple(zeros(variable) for variable in places.variables))


def evaluate(
    closed: core.ClosedJaxpr, places: Places, taps: Taps, values: Sequence[Any]
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The term with taps, and the operands that ``places`` reads.

    Parameters
    ----------
    closed
        From :func:`flatten`.
    places
        Equations that have a tap on their output, and those that move parameters, see their operands without taps; a
        variable with a tap has it wherever else it is used.
    taps
        What is added.
    values
        The parameter vector and the leaves of one record.
    """
    jaxpr = closed.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *values], strict=True))
    on_outputs = dict(zip(places.reads, taps.outputs, strict=True))
    on_variables = dict(zip(places.variables, taps.variables, strict=True))
    seen = []

    def tapped(atom: Any) -> Any:
        if isinstance(atom, core.Literal):
            return atom.val
        return known[atom] + on_variables[atom] if atom in on_variables else known[atom]

    def plain(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    for index, equation in enumerate(jaxpr.eqns):
        if index in on_outputs:
            operands = [plain(atom) for atom in equation.invars]
            seen.append(operands[places.reads[index]])
            [output] = _bind(jaxpr, equation, operands)
            known[equation.outvars[0]] = output + on_outputs[index]
        else:
            read = plain if index in places.moves else tapped
            outputs = _bind(jaxpr, equation, [read(atom) for atom in equation.invars])
            known.update(zip(_kept(equation), outputs, strict=True))
    return tapped(jaxpr.outvars[0]), tuple(seen)


def _written_out(jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *values], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        body = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if equation.primitive.name in _CALLS and isinstance(body, core.ClosedJaxpr):
            known.update(zip(equation.outvars, _written_out(body.jaxpr, body.consts, operands), strict=True))
        else:
            known.update(zip(_kept(equation), _bind(jaxpr, equation, operands), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _kept(equation: Any) -> list[Any]:
    return [var for var in equation.outvars if not isinstance(var, core.DropVar)]


def _bind(jaxpr: Any, equation: Any, operands: Sequence[Any]) -> list[Any]:
    """Outputs of one equation, evaluated as a jaxpr of its own: how primitives take their arguments is JAX's affair."""
    inputs = {atom: value for atom, value in zip(equation.invars, operands, strict=True) if _is_variable(atom)}
    alone = jaxpr.replace(
        constvars=[], invars=list(inputs), outvars=_kept(equation), eqns=[equation], effects=equation.effects
    )
    return core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))(*inputs.values())


def _is_variable(atom: Any) -> bool:
    return not isinstance(atom, core.Literal)
