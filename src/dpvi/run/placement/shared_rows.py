"""Every record in one process only: compared before rows are counted, for a record that two hold would count twice.

Processes add up their rows, and the guarantee is that of one row per person. A script that opens the same file in every
process, or the same rows of it, would therefore promise more than it keeps. What is compared are digests: of arrays in
memory all bytes; of files what :mod:`dpvi.records.sources.extents` reads of them, with the rows that were taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import jax
import numpy as np

from dpvi.records.sources.base import RowSource
from dpvi.records.sources.extents import Extent, content_digest
from dpvi.run.placement import hosts

_CLAIM = np.dtype([("digest", "V32"), ("extent", np.int64, 4)])
_SAMPLED_ROWS = 128  # of a source that cannot say which files it reads
_HASHED_ROWS = 65_536  # at a time, so that rows that do not lie one after the other are copied piece by piece


class Claim(NamedTuple):
    """Rows that one process holds, as others see them."""

    digest: bytes
    extent: Extent
    name: str  # for this process's own message


def refuse_shared(held: Any) -> None:
    """Refuse to run where two processes hold the same rows. Every process calls this.

    Parameters
    ----------
    held
        This process's records: a pytree of arrays, or a source.
    """
    if not hosts.several():
        return
    with hosts.ready_together():
        own = claims_of(held)
    claims = np.array([(np.void(part.digest), tuple(part.extent)) for part in own], _CLAIM)
    most = hosts.from_all(np.array([len(claims)])).max()
    padded = np.concatenate([claims, np.zeros(most - len(claims), _CLAIM)])  # what is filled up holds no rows
    received = hosts.from_all(np.frombuffer(padded.tobytes(), np.uint8))
    everyones = [np.frombuffer(each.tobytes(), _CLAIM) for each in received]
    parts = [[(bytes(digest), Extent(*extent.tolist())) for digest, extent in each] for each in everyones]
    found = next(shared_claims(parts), None)
    if found is not None:
        raise ValueError(_sentence(found, own, jax.process_index()))


def claims_of(held: Any) -> list[Claim]:
    """What this process holds, file by file, or all of its arrays as one."""
    if not isinstance(held, RowSource):
        return [Claim(_array_digest(held), Extent(), "arrays in memory")]
    extents = getattr(held, "extents", None)
    if extents is not None:
        return [Claim(content_digest(files), extent, str(files[0].path)) for files, extent in extents()]
    rows = np.unique(np.linspace(0, held.num_records - 1, _SAMPLED_ROWS).astype(np.int64))
    name = type(held).__name__
    return [Claim(_array_digest((np.array([held.num_records]), held.take(rows))), Extent(), name)]


def shared_claims(parts: list[list[tuple[bytes, Extent]]]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of (process, number of its part) that have a row in common."""
    same: dict[bytes, list[tuple[int, int]]] = {}
    for process, each in enumerate(parts):
        for number, (digest, extent) in enumerate(each):
            if extent.num_rows:
                same.setdefault(digest, []).append((process, number))
    for places in same.values():
        for one, other in combinations(places, 2):
            if one[0] != other[0] and parts[one[0]][one[1]][1].overlaps(parts[other[0]][other[1]][1]):
                yield one, other


def _sentence(found: tuple[tuple[int, int], tuple[int, int]], own: list[Claim], here: int) -> str:
    names = [own[number].name for process, number in found if process == here]
    which = f" ({names[0]})" if names else ""
    processes = " and ".join(str(process) for process, _ in found)
    return (
        f"Processes {processes} hold the same records{which}. Rows of all processes are added up, so a record that two "
        "of them hold would count twice and the guarantee would be wrong. Nothing was released. Give every process its "
        "own part: a file of its own, or rows such as x[jax.process_index() :: jax.process_count()]."
    )


def _array_digest(data: Any) -> bytes:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(data):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        for start in range(0, len(array), _HASHED_ROWS):
            digest.update(np.ascontiguousarray(array[start : start + _HASHED_ROWS]).tobytes())
    return digest.digest()
