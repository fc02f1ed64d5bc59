"""Which outputs of a jaxpr depend on which inputs, by following the data flow.

Gradients cannot tell: they vanish on integer columns, through comparisons and through ``stop_gradient``. Data flow
overstates dependence (``0 * x`` counts) and never understates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core


def depends(jaxpr: Any, tainted: Sequence[bool]) -> list[bool]:
    """Whether each output depends on a tainted input.

    Parameters
    ----------
    jaxpr
        A ``Jaxpr`` or ``ClosedJaxpr``; constants are untainted.
    tainted
        One flag per input.

    Examples
    --------
    >>> import jax
    >>> jaxpr = jax.make_jaxpr(lambda a, b: (a + 1, a * b))(1.0, 2.0)
    >>> depends(jaxpr, [False, True])
    [False, True]
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    marked = {var for var, flag in zip(jaxpr.invars, tainted, strict=True) if flag}

    def read(atom: Any) -> bool:
        return not isinstance(atom, core.Literal) and atom in marked

    for equation in jaxpr.eqns:
        flags = [read(atom) for atom in equation.invars]
        if any(flags):
            outputs = _through(equation, flags)
            marked.update(var for var, flag in zip(equation.outvars, outputs, strict=True) if flag)
    return [read(atom) for atom in jaxpr.outvars]


def _through(equation: Any, flags: list[bool]) -> list[bool]:
    name = equation.primitive.name
    everything = [True] * len(equation.outvars)
    if name == "scan":
        return _scan(equation, flags)
    if name == "while":
        return _while(equation.params, flags)
    if name == "cond":
        if flags[0]:
            return everything
        branches = [depends(branch, flags[1:]) for branch in equation.params["branches"]]
        return [any(column) for column in zip(*branches, strict=True)]
    # A call (jit, custom_jvp, remat, ...) has one inner jaxpr with the same inputs and outputs; an unknown primitive
    # that does not look like one is taken to mix everything, which errs towards a finding.
    inner = [value for value in equation.params.values() if isinstance(value, (core.Jaxpr, core.ClosedJaxpr))]
    if len(inner) == 1:
        body = getattr(inner[0], "jaxpr", inner[0])
        if len(body.invars) == len(flags) and len(body.outvars) == len(everything):
            return depends(body, flags)
    return everything


def _scan(equation: Any, flags: list[bool]) -> list[bool]:
    body = getattr(equation.params["jaxpr"], "jaxpr", equation.params["jaxpr"])
    # How the parameters count constants, carries and sequences differs between versions of JAX; shapes do not: only a
    # sequence has one more axis outside than inside.
    num_carry = sum(map(_same_rank, equation.outvars, body.outvars))
    num_sequences = len(flags) - sum(map(_same_rank, equation.invars, body.invars))
    num_consts = len(flags) - num_sequences - num_carry
    if num_consts < 0:
        return [True] * len(equation.outvars)
    consts, rest = flags[:num_consts], flags[num_consts + num_carry :]
    carry = flags[num_consts : num_consts + num_carry]
    while True:
        outputs = depends(body, [*consts, *carry, *rest])
        grown = [old or new for old, new in zip(carry, outputs[:num_carry], strict=True)]
        if grown == carry:
            return [*carry, *outputs[num_carry:]]
        carry = grown


def _same_rank(outer: Any, inner: Any) -> bool:
    return len(outer.aval.shape) == len(inner.aval.shape)


def _while(params: dict, flags: list[bool]) -> list[bool]:
    num_condition, num_body = params["cond_nconsts"], params["body_nconsts"]
    condition = flags[:num_condition]
    body = flags[num_condition : num_condition + num_body]
    carry = flags[num_condition + num_body :]
    while True:
        outputs = depends(params["body_jaxpr"], [*body, *carry])
        grown = [old or new for old, new in zip(carry, outputs, strict=True)]
        # The number of iterations reaches every carried value.
        if any(depends(params["cond_jaxpr"], [*condition, *grown])):
            return [True] * len(carry)
        if grown == carry:
            return carry
        carry = grown
