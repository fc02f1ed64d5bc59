"""What XLA may leave out of programs that are not worth it, and what it must leave alone."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
from jax.core import Tracer
from jax.experimental.xla_metadata import set_xla_metadata

_PLAIN_FUSIONS = {"xla_cpu_use_fusion_emitters": False}
_MOST_SHARED = 256  # compiled programs, the last used; a fit has about twenty
_SHARED: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_MODES = ("jax_enable_x64", "jax_numpy_dtype_promotion", "jax_default_matmul_precision", "jax_default_device")
_ARGUMENT = re.compile(r"%arg\d+: ")
_CALLBACK = "callback"  # in the text of a program that calls Python back, which the text does not show


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


class SharedProgram:
    """``jax.jit(function)``, but what is compiled serves every function that says the same.

    A second fit of a model is a second set of functions, and XLA takes seconds for what it has compiled before. Here a
    function is traced and lowered anew, which is cheap, and the text of the program decides. All arrays and numbers
    that the function closes over stand in it. So two functions share a program only where these are equal, too, and
    one whose captured arrays or globals have changed in between is another program. What calls Python back is not
    shared, because its text does not show what is called.

    Parameters
    ----------
    function
        Of arrays, and pytrees of them.
    options
        Of the compiler, or none.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> twice, thrice = (SharedProgram(lambda x, k=k: k * x) for k in (2, 3))
    >>> twice(jnp.arange(3)).tolist(), thrice(jnp.arange(3)).tolist()
    ([0, 2, 4], [0, 3, 6])
    >>> again = SharedProgram(lambda x: 2 * x)
    >>> again.compiled(jnp.arange(3)) is twice.compiled(jnp.arange(3))
    True
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})

        def anew(*arguments: Any) -> Any:  # JAX remembers what it traced of a function, whatever has changed since
            return function(*arguments)

        anew.__name__ = getattr(function, "__name__", "anew")
        # the text of a program that leaves an argument out does not say which one
        self._program = jax.jit(anew, compiler_options=self._options or None, keep_unused=True)
        self._own: dict[Any, Any] = {}
        self.lower = self._program.lower

    def __call__(self, *arguments: Any) -> Any:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments)):
            return self._program(*arguments)  # a part of another program
        return self.compiled(*arguments)(*arguments)

    def compiled(self, *arguments: Any) -> Any:
        """What runs for arguments of these shapes and types: found, or compiled now."""
        leaves, tree = jax.tree.flatten(arguments)
        modes = tuple(getattr(jax.config, name) for name in _MODES)
        key = (tree, tuple(map(jax.typeof, leaves)), modes)
        if key not in self._own:
            self._own[key] = self._shared(key, *arguments)
        return self._own[key]

    def _shared(self, key: tuple[Any, ...], *arguments: Any) -> Any:
        """What serves the arguments that ``key`` describes, if possible made for another function."""
        lowered = self._program.lower(*arguments)
        text, num_given = lowered.as_text(), len(jax.tree.leaves(arguments))
        if _num_arguments(text) != num_given:  # an array that the function holds is one, and the text lacks its numbers
            return self._program
        if _CALLBACK in text:
            return lowered.compile()
        digest = hashlib.sha256(f"{jax.default_backend()} {self._options} {text}".encode()).digest()
        name = digest, lowered.out_tree, key  # which the text does not hold
        if name not in _SHARED:
            _SHARED[name] = lowered.compile()
        _SHARED.move_to_end(name)
        if len(_SHARED) > _MOST_SHARED:
            _SHARED.popitem(last=False)
        return _SHARED[name]

    @property
    def num_compiled(self) -> int:
        """For how many shapes and types of arguments."""
        return len(self._own)


def forget_programs() -> None:
    """No program that is compiled by now is shared with functions to come."""
    _SHARED.clear()


def _num_arguments(text: str) -> int:
    signature = next(line for line in text.splitlines() if "@main(" in line)
    return len(_ARGUMENT.findall(signature.partition("->")[0]))
