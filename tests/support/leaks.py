"""A search for records and for their number in whatever a command or a function leaves behind.

Secrets are numbers nobody would meet by chance: a marker value that one record has, the number of records and its
neighbours, sizes that follow from it, sums and means without noise. Everything is taken apart down to texts, numbers
and shapes, and each of those is compared.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import math
import numbers
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import jax
import numpy as np

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:[,_]\d{3})+(?![\w,])")
_NO_LEAF = (ModuleType, type)

Leaf = tuple[str, Any]  # where, and a text, a number or an array


@dataclasses.dataclass(frozen=True)
class Secrets:
    """What must be nowhere.

    Attributes
    ----------
    counts
        Whole numbers: how many records there are, and what follows from it. Shapes are compared with them, too.
    values
        Values and statistics of records, compared to six digits; to four in texts, which round.
    texts
        Levels or labels of a record.
    """

    counts: frozenset[int]
    values: tuple[float, ...]
    texts: tuple[str, ...] = ()

    def found_in(self, leaves: Iterator[Leaf]) -> list[str]:
        """Where a secret stands, with the secret."""
        return [f"{where}: {found}" for where, leaf in leaves for found in self._in(leaf)]

    def _in(self, leaf: Any) -> list[Any]:
        if isinstance(leaf, str):
            spoken = [float(token) for token in _NUMBER.findall(leaf)]
            spoken += [float(re.sub("[,_]", "", token)) for token in _THOUSANDS.findall(leaf)]
            return [text for text in self.texts if text in leaf] + self._numbers(np.array(spoken), 1e-4)
        array = np.asarray(leaf)
        shape = [f"shape {array.shape}"] if self.counts & set(array.shape) else []
        if array.dtype.kind in "OSU":
            return shape + [each for item in array.ravel() for each in self._in(str(item))]
        return shape + (self._numbers(array.astype(np.float64).ravel(), 1e-6) if array.dtype.kind in "iuf" else [])

    def _numbers(self, array: np.ndarray, tolerance: float) -> list[float]:
        counted = array[np.isin(array, list(self.counts))].tolist()
        with np.errstate(invalid="ignore"):
            near = [value for value in self.values if np.any(np.abs(array - value) <= tolerance * abs(value))]
        return counted + near


def leaves(where: str, value: Any, seen: dict[int, Any] | None = None) -> Iterator[Leaf]:
    """Texts, numbers and arrays in an object, through containers, attributes and closures."""
    seen = {} if seen is None else seen
    if value is None or isinstance(value, (bool, *_NO_LEAF)) or id(value) in seen:
        return
    if isinstance(value, (str, bytes, numbers.Number)):
        yield where, value.decode("latin-1") if isinstance(value, bytes) else value
        return
    seen[id(value)] = value
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "__array__"):
        yield where, np.asarray(value)
    elif isinstance(value, BaseException):
        yield from of_exception(value)
    else:
        for name, part in parts(value):
            yield from leaves(f"{where}.{name}", part, seen)


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"key {key!r}", key) for key in value)
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((str(index), item) for index, item in enumerate(value))
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield name, cell.cell_contents
    else:
        yield from getattr(value, "__dict__", {}).items()
        shape = getattr(value, "shape", None)
        yield from [("shape", shape)] if isinstance(shape, tuple) else []


def of_exception(error: BaseException) -> Iterator[Leaf]:
    """Texts, arguments and notes of an exception and of all that it carries along."""
    waiting, seen = [error], []
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.append(one)
        yield type(one).__name__, str(one)
        yield from leaves(f"{type(one).__name__}.args", list(one.args))
        yield from leaves(f"{type(one).__name__}.notes", getattr(one, "__notes__", []))
        waiting += [each for each in (one.__cause__, one.__context__) if each is not None]


def of_file(path: Path, content: bytes | None = None) -> Iterator[Leaf]:
    """What a file holds, and its name; archives member by member."""
    content = path.read_bytes() if content is None else content
    where = path.name
    yield "file name", where
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                yield from of_file(Path(where) / member, archive.read(member))
    elif content.startswith(b"\x93NUMPY"):
        yield where, np.load(io.BytesIO(content), allow_pickle=False)
    elif content.startswith(b"PAR1"):
        import pyarrow.parquet as parquet

        yield from leaves(where, parquet.read_table(io.BytesIO(content)).to_pydict())
    elif path.suffix in (".pkl", ".pickle"):
        yield from leaves(where, pickle.loads(content))
    elif content.startswith(b"\x89PNG"):  # the pixels are compressed; what the figure shows is searched as a figure
        yield from (
            (where, chunk.decode("latin-1")) for chunk in re.findall(rb"(?:tEXt|iTXt)([^\x89]{1,400})", content)
        )
    else:
        text = content.decode("utf-8", errors="replace")
        yield where, text
        if path.suffix == ".json":
            yield from leaves(where, json.loads(text))


def of_figure(figure: Any) -> Iterator[Leaf]:
    """Texts and coordinates of every artist."""
    for artist in figure.findobj():
        name = type(artist).__name__
        for method in ("get_text", "get_label", "get_xydata", "get_offsets", "get_array", "get_width", "get_height"):
            found = getattr(artist, method, lambda: None)()
            yield from leaves(
                f"{name}.{method}", found if isinstance(found, str) or found is None else np.asarray(found)
            )
        for path in getattr(artist, "get_paths", list)():
            yield f"{name} path", np.asarray(path.vertices)


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@dataclasses.dataclass
class Observed:
    """What a call left behind."""

    returned: Any = None
    error: BaseException | None = None
    warned: list[str] = dataclasses.field(default_factory=list)
    logged: list[str] = dataclasses.field(default_factory=list)
    console: str = ""
    folder: Path | None = None

    def leaves(self) -> Iterator[Leaf]:
        yield from leaves("returned", self.returned)
        yield "repr", f"{self.returned!r} {self.returned!s}"
        if self.error is not None:
            yield from of_exception(self.error)
        yield from (("warning", text) for text in self.warned)
        yield from (("log", text) for text in self.logged)
        yield from (("console", line) for line in re.split(r"[\r\n]", self.console) if "cpu_aot_loader" not in line)
        for path in sorted(self.folder.rglob("*")) if self.folder is not None else []:
            if path.is_file():
                yield from of_file(path)


def observe(call: Callable[[Path], Any], folder: Path, capture: Any) -> Observed:
    """Call with an empty folder to write to; ``capture`` is pytest's ``capfd``."""
    folder.mkdir()
    seen = Observed(folder=folder)
    capture.readouterr()
    with warnings.catch_warnings(record=True) as warned, _logs() as logged:
        warnings.simplefilter("always")
        try:
            seen.returned = call(folder)
        except Exception as error:
            seen.error = error
    seen.warned, seen.logged = [str(each.message) for each in warned], logged.texts
    seen.console = "\n".join(capture.readouterr())
    return seen


@contextmanager
def _logs() -> Iterator[_Kept]:
    root, kept = logging.getLogger(), _Kept()
    level = root.level
    root.addHandler(kept)
    root.setLevel(logging.INFO)
    try:
        yield kept
    finally:
        root.removeHandler(kept)
        root.setLevel(level)


def secrets_of(records: np.ndarray, marker: float, further: set[int], texts: tuple[str, ...] = ()) -> Secrets:
    """Of an array with one row per record: its marker, its number of rows, sums and means of its columns."""
    count = len(records)
    columns = records.reshape(count, -1).astype(np.float64).T
    statistics = [f(column) for column in columns for f in (np.sum, np.mean, np.std, np.max, np.min)]
    distinct = [marker, *(float(value) for value in statistics if math.isfinite(value) and abs(value) > 100)]
    return Secrets(frozenset({count - 1, count, count + 1} | further), tuple(distinct), texts)
