"""What XLA may leave out of programs that are not worth it, and what it must leave alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.experimental.xla_metadata import set_xla_metadata

_PLAIN_FUSIONS = {"xla_cpu_use_fusion_emitters": False}


_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled_apart(function: _Function) -> _Function:
    """``function`` as a call that XLA keeps on a processor, where else it would be merged with what is around it.

    How numbers are rounded depends on what they are merged with. An accelerator is given the function as it is, as is
    an XLA that does not know the mark.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if jax.default_backend() != "cpu":
            return function(*arguments)
        return set_xla_metadata(jax.jit(function)(*arguments), inlineable="false")

    return call  # type: ignore[return-value]


@functools.cache
def plain_fusions() -> dict[str, Any]:
    """Compiler options for ``jax.jit`` with which a processor's program takes two thirds of the time and half of the
    memory to compile.

    It then runs slower: by a tenth where it is about indices and whole numbers, several times where it is about
    exponentials and logarithms. Empty on accelerators, and where XLA does not know the option, which is not part of
    JAX's promises.
    """
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=_PLAIN_FUSIONS).lower().compile()
    except Exception:  # whatever it is that a later version says: programs are the same without
        return {}
    return _PLAIN_FUSIONS
