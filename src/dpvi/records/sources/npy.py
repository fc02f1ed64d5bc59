"""Folders of ``.npy`` files: one file per argument of the model, in one folder or in one folder per shard."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from dpvi.records.arrays import run_dtype
from dpvi.records.sources.base import SourceError, take_from_parts
from dpvi.records.sources.extents import Held
from dpvi.records.sources.folders import is_passed_over, is_wanted, refuse_twice
from dpvi.records.sources.mapped import RawArray, raw_array


class _Folder:
    """``x.npy``, ``y.npy``, … with one row per record each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = _npy_files(path)
        self.arrays: dict[str, RawArray] = {file.stem: _open(file) for file in files}
        if len(self.arrays) < len(files):
            raise SourceError(f"{path} holds two files for one argument of the model, whose endings differ in case.")
        if not self.arrays:
            raise SourceError(f"{path} holds no .npy file; it must hold one per argument of the model, such as x.npy.")
        lengths = {array.shape[0] for array in self.arrays.values()}
        if len(lengths) > 1:
            names = ", ".join(f"{name}.npy" for name in self.arrays)
            raise SourceError(f"{path}: {names} must have the same number of rows, one per record; they differ.")
        self.num_rows = lengths.pop()

    def take(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {name: array.take(rows) for name, array in self.arrays.items()}


class NpySource:
    """Records from :func:`open_npy`."""

    def __init__(self, folders: list[_Folder]) -> None:
        self._folders = folders
        self._starts = np.cumsum([0, *(folder.num_rows for folder in folders)])
        self.num_records = int(self._starts[-1])
        first = folders[0].arrays
        self.shapes = {
            name: jax.ShapeDtypeStruct((self.num_records, *array.shape[1:]), array.dtype)
            for name, array in first.items()
        }

    def take(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return take_from_parts(self._folders, self._starts, rows)

    def extents(self) -> list[Held]:
        """Which rows of which files these are."""
        arrays = [list(folder.arrays.values()) for folder in self._folders]
        return [Held(tuple(array.stamp for array in each), each[0].extent) for each in arrays]

    def check_unchanged(self) -> None:
        for folder in self._folders:
            for array in folder.arrays.values():
                array.stamp.check()


def open_npy(folder: str | Path) -> NpySource:
    """Records in ``.npy`` files, read when they are drawn.

    Parameters
    ----------
    folder
        Holds one file per argument of the model, ``x.npy``, ``y.npy``, …, with one row per record; or folders that do,
        one per shard, taken in the order of their names. Shards may differ in length only. Names that begin with ``_``
        or ``.`` are passed over. Links are followed; a file that is in two shards is refused, since its records would
        count twice. Copies are not recognised.

    Returns
    -------
    What :func:`dpvi.fit` takes as ``data``; the names of the files are the model's arguments.
    """
    path = Path(folder)
    if not path.is_dir():
        raise SourceError(f"{path} must be a folder of .npy files.")
    folders = [_Folder(each) for each in _shards(path)]
    _refuse_shared_files(folders)
    first = folders[0]
    for other in folders[1:]:
        for name in first.arrays.keys() ^ other.arrays.keys():
            here, there = (first, other) if name in first.arrays else (other, first)
            raise SourceError(f"{there.path / name}.npy is missing; {here.path} has it, and all shards must.")
        for name, array in other.arrays.items():
            expected = first.arrays[name]
            if (array.dtype, array.shape[1:]) != (expected.dtype, expected.shape[1:]):
                raise SourceError(
                    f"{array.stamp.path} holds rows of {array.dtype} with shape {array.shape[1:]}, those of "
                    f"{expected.stamp.path} are {expected.dtype} with shape {expected.shape[1:]}; shards must agree."
                )
    return NpySource([each for each in folders if each.num_rows] or folders[:1])


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise SourceError(f"{folder} cannot be looked into: {error.strerror}.") from None


def _npy_files(folder: Path) -> list[Path]:
    """The files of a folder that hold an argument of the model, in the order of their names."""
    return sorted(each for each in _entries(folder) if is_wanted(each.name, (".npy",)) and not each.is_dir())


def _shards(path: Path) -> list[Path]:
    """The folders that hold the files: ``path`` itself, or all below it."""
    below = sorted(each for each in _entries(path) if each.is_dir() and not is_passed_over(each.name))
    if not _npy_files(path):
        return below or [path]
    for each in below:
        if _npy_files(each):
            raise SourceError(
                f"{path} holds .npy files, and so does {each}; records are here or in folders below, not in both. "
                "Move the files into a folder of their own."
            )
    return [path]


def _refuse_shared_files(folders: list[_Folder]) -> None:
    """Refuse a file that is in two shards. Within a shard one file may serve two arguments: its rows count once."""
    seen: dict[tuple[int, int], Path] = {}
    for folder in folders:
        refuse_twice([folder.path], seen)
    for folder in folders:
        own = {(array.stamp.device, array.stamp.inode): array.stamp.path for array in folder.arrays.values()}
        refuse_twice(own.values(), seen)


def _open(path: Path) -> RawArray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise SourceError(f"{path} cannot be read as a .npy file of numbers: {type(error).__name__}.") from None
    if not isinstance(array, np.memmap):
        array.close()
        raise SourceError(f"{path} is an archive of arrays; save each of them to a .npy file of its own.")
    if array.ndim == 0:
        raise SourceError(f"{path} must hold one row per record, got a single number.")
    if run_dtype(array.dtype) is None:
        raise SourceError(
            f"{path} must hold numbers or booleans, got dtype {array.dtype}. Encode text, categories and dates with "
            "declared levels first, and give each field of a structure a file of its own."
        )
    return raw_array(array)
