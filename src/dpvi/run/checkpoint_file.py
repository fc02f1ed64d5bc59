"""The file of a checkpoint: arrays and a JSON header in a zip archive with a checksum, no pickle.

It holds what a run released and its public settings, and never the key. It is written beside its place, brought to the
disk and renamed, so that there is always a whole one, even where the power fails.
"""

from __future__ import annotations

import hmac
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.posterior.storage import checksum_of
from dpvi.release.driver import Released
from dpvi.run.program.settled import Settled, Stretch
from dpvi.run.study_folder import own_name, to_disk

FORMAT, VERSION = "dpvi checkpoint", 1
_HEADER, _CHECKSUM = "header", "checksum"
_TOLD = ("iterate", "mean_iterate", "mean_query", "mean_noisy_sum")

Arrays = dict[str, np.ndarray]


def write(path: Path, header: dict[str, Any], arrays: Arrays) -> None:
    """Bring a checkpoint to the disk, whole or not at all; what was there before stays until then."""
    text = json.dumps({"format": FORMAT, "version": VERSION, **header}, sort_keys=True)
    content: dict[str, Any] = {**arrays, _HEADER: np.frombuffer(text.encode(), np.uint8)}
    content[_CHECKSUM] = np.frombuffer(checksum_of(content), np.uint8)
    temporary = own_name(path)
    try:
        with open(temporary, "xb") as file:
            np.savez(file, **content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, Any], Arrays] | None:
    """Header and arrays, or ``None`` where there is no file.

    Raises
    ------
    ValueError
        With one sentence: no checkpoint, of another version, changed or damaged.
    """
    if not path.exists():
        return None
    with open(path, "rb") as file:  # a file that may not be read says so itself
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(arrays[_HEADER].tobytes().decode())
            kind, version = header["format"], header["version"]
            found = arrays.pop(_CHECKSUM).tobytes()
        except Exception:  # what a damaged archive raises depends on where the damage is
            raise ValueError(_refused(path, "is not a checkpoint of dpvi, or it is damaged")) from None
    if kind != FORMAT or version != VERSION:
        raise ValueError(_refused(path, f"is not a checkpoint of version {VERSION}, which this dpvi reads"))
    if not hmac.compare_digest(found, checksum_of(arrays)):
        raise ValueError(_refused(path, "was changed after dpvi wrote it, or is damaged"))
    return header, {name: array for name, array in arrays.items() if name != _HEADER}


def _refused(path: Path, what: str) -> str:
    return (
        f"{path} {what}. Nothing was computed. Put back the file as it was written, or give another checkpoint= to "
        "begin a new run, which is charged to a ledger once more."
    )


def packed(settled: Settled, leaves: list[Any]) -> Arrays:
    """A run that stands still as named arrays; ``leaves`` are those of its state."""
    arrays = {f"recorded.{name}": array for name, array in settled.recorded.items()}
    arrays |= {f"state.{number}": np.asarray(leaf) for number, leaf in enumerate(leaves)}
    arrays["step"] = np.array(settled.step)
    if settled.totals is not None:
        arrays |= {f"totals.{number}": part for number, part in enumerate(settled.totals)}
    if settled.released is not None:
        arrays |= _packed_told("released", [settled.released])
    if settled.stretches:
        arrays |= _packed_told("told", [stretch.told for stretch in settled.stretches])
        points = [stretch.query for stretch in settled.stretches]
        nowhere = np.full(next((point.shape for point in points if point is not None), (1,)), np.nan)
        arrays["queries"] = np.stack([nowhere if point is None else point for point in points])
        arrays["stops"] = np.array([stretch.stop for stretch in settled.stretches])
    return arrays


def unpacked(arrays: Arrays, template: Any, leaves: list[Any], num_steps: int) -> Settled:
    """The run that :func:`packed` made ``arrays`` of.

    Parameters
    ----------
    template
        (list of leaves) to a state.
    leaves
        Of a state of the same run, whose shapes and types those of the file must have.

    Raises
    ------
    ValueError, KeyError
        Where the arrays are not those of such a run.
    """
    found = [arrays[f"state.{number}"] for number in range(len(leaves))]
    for one, leaf in zip(found, leaves, strict=True):
        if one.shape != np.shape(leaf) or one.dtype != np.asarray(leaf).dtype:
            raise ValueError("its state has other shapes or types")
    step = int(arrays["step"])
    if not 0 <= step <= num_steps:
        raise ValueError("its step is not one of the plan")
    recorded = {name.removeprefix("recorded."): part for name, part in arrays.items() if name.startswith("recorded.")}
    stretches: tuple[Stretch, ...] = ()
    if "stops" in arrays:
        told = _unpacked_told("told", arrays, num_steps)
        queries = [None if np.all(np.isnan(query)) else query for query in arrays["queries"]]
        stops = map(int, arrays["stops"])
        stretches = tuple(Stretch(*parts) for parts in zip(stops, queries, told, strict=True))
    totals = tuple(arrays[f"totals.{number}"] for number in range(3)) if "totals.0" in arrays else None
    released = _unpacked_told("released", arrays, num_steps)[0] if "released.step" in arrays else None
    return Settled(step, template(found), recorded, stretches, totals, released)


def _packed_told(prefix: str, told: list[Released]) -> Arrays:
    arrays = {f"{prefix}.{name}": np.stack([getattr(each, name) for each in told]) for name in _TOLD}
    return {**arrays, f"{prefix}.step": np.array([each.step for each in told])}


def _unpacked_told(prefix: str, arrays: Arrays, num_steps: int) -> list[Released]:
    steps = [int(step) for step in arrays[f"{prefix}.step"]]
    parts = [arrays[f"{prefix}.{name}"] for name in _TOLD]
    return [Released(step, num_steps - step, *rest) for step, *rest in zip(steps, *parts, strict=True)]
