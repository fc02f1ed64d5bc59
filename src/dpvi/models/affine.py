"""Whether outputs of a jaxpr are affine functions of some of its inputs, by its operations alone.

Derivatives cannot tell: that of a step function is zero everywhere. Operations can: a sum, a product with what does not
depend on these inputs, a choice of entries by such. Whatever is not on the list counts as not affine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend import core

_ANY = {"add", "add_any", "sub", "neg", "concatenate", "copy", "copy_p", "broadcast_in_dim", "reshape", "squeeze"}
_ANY |= {"transpose", "slice", "rev", "reduce_sum", "cumsum", "pad", "expand_dims", "convert_element_type"}
_FIRST = {"div", "gather", "dynamic_slice"}  # with nothing else than the first input depending on what is followed
_ONE = {"mul", "dot_general"}
_MOST = 2  # neither, affine, anything else


def affine(jaxpr: Any, followed: Sequence[bool]) -> list[bool]:
    """Whether each output is an affine function of the ``followed`` inputs, constants among these.

    Parameters
    ----------
    jaxpr
        A ``Jaxpr`` or ``ClosedJaxpr``.
    followed
        One flag per input.

    Examples
    --------
    >>> import jax
    >>> jaxpr = jax.make_jaxpr(lambda a, b: (b * a + b**2, a * a, jnp.where(a > 0, b, 0.0)))(1.0, 2.0)
    >>> affine(jaxpr, [True, False])
    [True, False, False]
    """
    return [degree < _MOST for degree in _degrees(jaxpr, list(map(int, followed)))]


def _degrees(jaxpr: Any, inputs: list[int]) -> list[int]:
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    known = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> int:
        return 0 if isinstance(atom, core.Literal) else known.get(atom, 0)

    for equation in jaxpr.eqns:
        degrees = [read(atom) for atom in equation.invars]
        if any(degrees):
            known.update(zip(equation.outvars, _through(equation, degrees), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _through(equation: Any, degrees: list[int]) -> list[int]:
    name, beyond = equation.primitive.name, [_MOST] * len(equation.outvars)
    inner = [value for value in equation.params.values() if isinstance(value, (core.Jaxpr, core.ClosedJaxpr))]
    if len(inner) == 1:  # a call has one inner jaxpr with the same inputs and outputs, a loop's differ
        body = getattr(inner[0], "jaxpr", inner[0])
        fits = len(body.invars) == len(degrees) and len(body.outvars) == len(beyond)
        return _degrees(body, degrees) if fits and name not in ("scan", "while") else beyond
    if max(degrees) == _MOST:
        return beyond
    kept = (
        (name in _ANY and jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating))
        or (name in _FIRST and not any(degrees[1:]))
        or (name in _ONE and sum(degrees) == 1)
        or (name == "select_n" and not degrees[0])
    )
    return [1] * len(beyond) if kept else beyond
