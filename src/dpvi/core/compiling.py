"""What XLA may leave out of programs that are not worth it."""

from __future__ import annotations

import functools
from typing import Any

import jax

_PLAIN_FUSIONS = {"xla_cpu_use_fusion_emitters": False}


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
