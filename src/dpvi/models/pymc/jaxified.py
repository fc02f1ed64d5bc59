"""Graphs of PyTensor as functions of JAX, for a given number of records.

A graph is rewritten for each number of rows that it meets (the record alone, the few of a check, the many of a
simulation), so that all shapes are fixed before JAX sees it. Nothing is compiled by PyTensor: no C compiler is needed,
and no directory of compiled code is read or written.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpvi.models.pymc.lazily import imported, traversal

_LINKER = "pytensor.link.jax.dispatch"
_KEPT = 128  # compiled graphs


class Graphs(NamedTuple):
    """Outputs of PyTensor and what they are computed from."""

    inputs: list[Any]  # unconstrained or constrained values of the latents, in order
    leaves: list[Any]  # placeholders of the records' arrays, in the order of their names
    length: Any  # placeholder of the number of records
    outputs: list[Any]


class Program:
    """Graphs by name, and the functions that JAX makes of them."""

    def __init__(self, graphs: Mapping[str, Graphs]) -> None:
        self._graphs = dict(graphs)

    def __reduce__(self) -> tuple[Any, ...]:
        cloudpickle = imported("cloudpickle")  # PyMC brings it, for the functions in its graphs
        return _unpacked, (cloudpickle.dumps(self._graphs),)

    def graphs(self, name: str) -> Graphs:
        """The graphs of one name."""
        return self._graphs[name]

    def __call__(
        self, name: str, values: Sequence[jax.Array], leaves: Sequence[jax.Array], num_records: int, key: Any = None
    ) -> list[jax.Array]:
        """Outputs of the graphs ``name`` on JAX arrays; ``key`` for those that draw."""
        function, dtypes, num_draws = _compiled(self, name, num_records, _in_double_precision())
        with _as_pytensor_expects():
            given = [jnp.asarray(leaf).astype(dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)]
            streams = [{"jax_state": jax.random.fold_in(key, index)} for index in range(num_draws)]
            return [_as_float(output) for output in function(*values, *given, *streams)]


def _in_double_precision() -> bool:
    return bool(getattr(jax.config, "jax_enable_x64"))  # noqa: B009


def _unpacked(packed: bytes) -> Program:
    return Program(imported("cloudpickle").loads(packed))


def import_linker() -> Callable:
    """PyTensor's ``jax_funcify``; importing it must not turn on double precision for the whole process."""
    if _LINKER not in sys.modules:
        with ThreadPoolExecutor(1) as other:  # where no ``jax.enable_x64(...)`` of this thread hides the setting
            before = other.submit(_in_double_precision).result()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                imported("pymc.sampling.jax")  # checks of positive definiteness, for JAX
                imported(_LINKER)
            finally:
                jax.config.update("jax_enable_x64", before)
        _complete()
    return sys.modules[_LINKER].jax_funcify


def _complete() -> None:
    """What PyTensor's linker lacks of JAX's own functions, and ordinary models use."""
    ops = imported("pytensor.tensor.random.basic")
    draws = imported(_LINKER + ".random").jax_sample_fn
    scalars = imported("pytensor.scalar.math")

    def weibull(op: Any, node: Any) -> Callable:
        return lambda key, size, dtype, shape: jax.random.weibull_min(key, 1.0, shape, size, dtype)

    # a truncated normal's density; PyTensor would ask for another library
    sys.modules[_LINKER].jax_funcify.register(scalars.Erfcx)(lambda op, **_: jax.scipy.special.erfcx)
    if draws.dispatch(ops.WeibullRV) is draws.dispatch(object):
        draws.register(ops.WeibullRV)(weibull)


@lru_cache(maxsize=_KEPT)
def _compiled(program: Program, name: str, num_records: int, double: bool) -> tuple[Callable, list[str], int]:
    """The function, the dtypes of its leaves, and how many streams of random numbers it takes."""
    pytensor = imported("pytensor")
    pt = imported("pytensor.tensor")
    JAX = imported("pytensor.compile.mode").JAX
    FunctionGraph = imported("pytensor.graph.fg").FunctionGraph
    clone_replace = imported("pytensor.graph.replace").clone_replace

    graphs = program.graphs(name)
    rows = [pt.tensor(dtype=leaf.type.dtype, shape=(num_records, *leaf.type.shape[1:])) for leaf in graphs.leaves]
    fixed = dict(zip(graphs.leaves, rows, strict=True))
    fixed[graphs.length] = pt.constant(num_records, dtype=graphs.length.type.dtype)
    with pytensor.config.change_flags(cxx="", on_opt_error="ignore"), _as_pytensor_expects():
        outputs = clone_replace(graphs.outputs, replace=fixed, rebuild_strict=False)
        streams = generators(outputs)
        inner = FunctionGraph([*graphs.inputs, *rows, *streams], outputs, clone=True)
        JAX.optimizer.rewrite(inner)
        with jax.ensure_compile_time_eval():  # constants outlive the trace in which this is asked for
            function = import_linker()(inner)
    return function, [leaf.type.dtype for leaf in rows], len(streams)


def generators(outputs: Sequence[Any]) -> list[Any]:
    """The sources of random numbers that ``outputs`` are computed from."""
    RandomGeneratorType = imported("pytensor.tensor.random.type").RandomGeneratorType

    return [each for each in inputs_of(outputs) if isinstance(each.type, RandomGeneratorType)]


def inputs_of(outputs: Sequence[Any]) -> list[Any]:
    """What a graph begins with, each once and in order."""
    graph_inputs = traversal().graph_inputs
    return list(dict.fromkeys(graph_inputs(outputs)))


@contextlib.contextmanager
def _as_pytensor_expects() -> Iterator[None]:
    """PyTensor mixes dtypes freely, asks for double precision by name, and tells of checks that JAX leaves out."""
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore")
        yield


def _as_float(value: Any) -> jax.Array:
    array = jnp.asarray(value)
    return array.astype(jnp.result_type(float)) if jnp.issubdtype(array.dtype, jnp.floating) else array
