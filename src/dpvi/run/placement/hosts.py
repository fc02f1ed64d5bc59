"""Several processes, one run: what they must agree on, and what happens when one of them is lost.

Each process holds its own rows and makes the same calls. Process 0 decides whatever chance or rounding could make
different elsewhere: the root key, where the run starts, the points a driver chooses. With one process all of this does
nothing.

Un-noised sums, counts, digests of records and the root key travel between processes over JAX's own connections, which
are not encrypted: the network must be as trusted as the machines that hold the records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# how messages of JAX's runtime begin when a collective fails; they come as ValueError or JaxRuntimeError
_STATUSES = ("UNKNOWN:", "INTERNAL:", "UNAVAILABLE:", "ABORTED:", "CANCELLED:", "DEADLINE_EXCEEDED:", "FAILED_PRECOND")


class LostProcessError(RuntimeError):
    """Another process of the run failed or vanished."""


def several() -> bool:
    return jax.process_count() > 1


@contextmanager
def ready_together() -> Iterator[None]:
    """All processes leave this block, or none does: where one raises, the others raise too instead of waiting for it.

    Inside, processes must not speak to each other.
    """
    if not several():
        yield
        return
    try:
        yield
    except BaseException:
        _gather(np.zeros(1, np.uint8))
        raise
    flags = _gather(np.ones(1, np.uint8))[:, 0]
    if not flags.all():
        names = ", ".join(map(str, np.flatnonzero(flags == 0)))
        raise LostProcessError(
            f"The run stopped here because process {names} could not go on; its own message says why. "
            "Nothing was released."
        )


@contextmanager
def losses_explained() -> Iterator[None]:
    """A sentence for the runtime's message about a process that vanished."""
    try:
        yield
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        if several() and str(error).startswith(_STATUSES):
            raise LostProcessError(
                "Another process of this run was lost, or the connection to it. Nothing of the run is returned; "
                "start all of its processes again."
            ) from error
        raise


def from_first(array: Any) -> np.ndarray:
    """Process 0's array, bit by bit, in every process; shapes and dtypes must agree."""
    array = np.asarray(array)
    if not several():
        return array
    received = _gather(np.frombuffer(array.tobytes(), np.uint8))[0]
    return np.frombuffer(received.tobytes(), array.dtype).reshape(array.shape)


def from_all(array: np.ndarray) -> np.ndarray:
    """Every process's array, bit by bit, with a leading axis of processes."""
    if not several():
        return array[None]
    received = _gather(np.frombuffer(array.tobytes(), np.uint8))
    return np.frombuffer(received.tobytes(), array.dtype).reshape(-1, *array.shape)


def require_same(settings: dict[str, Any]) -> None:
    """Refuse to run where processes were given different settings."""
    if not several():
        return
    texts = [json.dumps(value, sort_keys=True, default=repr).encode() for value in settings.values()]
    received = from_all(np.stack([np.frombuffer(hashlib.sha256(text).digest(), np.uint8) for text in texts]))
    same = (received == received[:1]).all(axis=(0, 2))
    different = [name for name, agrees in zip(settings, same, strict=True) if not agrees]
    if different:
        raise ValueError(
            f"All processes of a run must be given the same settings; these differ: {', '.join(different)}. "
            "Let every process run the same script."
        )


@cache
def _meeting() -> tuple[Mesh, Callable[[jax.Array], jax.Array]]:
    """Where processes meet, and the program that tells everybody everything.

    It runs on one device of each: hosts may have different numbers of them, which JAX's own gathering does not expect.
    """
    by_number = sorted(jax.devices(), key=lambda device: device.id)
    first = [next(d for d in by_number if d.process_index == process) for process in range(jax.process_count())]
    mesh = Mesh(np.array(first), ("processes",))
    return mesh, jax.jit(lambda each: each, out_shardings=NamedSharding(mesh, P()))


def _gather(array: np.ndarray) -> np.ndarray:
    """Every process's array of bytes, with a leading axis of processes."""
    mesh, gather = _meeting()
    own = jax.device_put(array[None], mesh.devices[jax.process_index()])
    spread = NamedSharding(mesh, P("processes"))
    everyones = jax.make_array_from_single_device_arrays((mesh.size, *array.shape), spread, [own])
    return np.asarray(gather(everyones).addressable_data(0))
