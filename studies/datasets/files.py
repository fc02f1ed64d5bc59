"""Where a data file comes from: a given path, the folder named by ``DPVI_DATA``, or a checked download."""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DATA_VARIABLE = "DPVI_DATA"
CACHE_VARIABLE = "DPVI_CACHE"

_GZIP = b"\x1f\x8b"
_PIECE = 2**20
_TIMEOUT = 60.0


@dataclass(frozen=True)
class DataFile:
    """One public file and how it may be found.

    Parameters
    ----------
    folder
        Name of the data set's folder under ``DPVI_DATA`` and in the cache.
    names
        File names that are accepted in a folder, in the order in which they are looked for.
    url, sha256
        Where the file is served and the SHA-256 of the bytes served there; ``None`` where no checksum is known, and
        then nothing is downloaded.
    origin
        Where a person finds the file, for the sentence that says it is missing.
    """

    folder: str
    names: tuple[str, ...]
    origin: str
    url: str | None = None
    sha256: str | None = None


def locate(file: DataFile, path: str | Path | None = None, download: bool = False) -> Path:
    """The path of ``file`` on this machine.

    Looked for in this order: ``path`` (the file itself or a folder that holds it; nothing else is tried then),
    the folder ``$DPVI_DATA/<folder>``, the cache (``$DPVI_CACHE``, or ``dpvi`` under the user's cache folder), and,
    only with ``download``, the public address. What the cache holds or an address serves is refused unless its SHA-256
    is the known one; files under ``path`` and ``DPVI_DATA`` are the user's own and are not checked.

    Raises
    ------
    FileNotFoundError
        Where the file is in none of these places.
    ValueError
        Where a downloaded or cached file is not the one expected.
    """
    if path is not None:
        return _given(file, Path(path))
    if folder := os.environ.get(DATA_VARIABLE):
        found = _in_folder(file, Path(folder) / file.folder)
        if found is not None:
            return found
    if file.url is not None and file.sha256 is not None:
        cached = cache_folder() / file.folder / Path(urlsplit(file.url).path).name
        if cached.exists():
            _check(cached, _digest(cached), file.sha256)
            return cached
        if download:
            return fetch(file.url, file.sha256, cached)
    raise FileNotFoundError(_missing(file))


def fetch(url: str, sha256: str, destination: Path) -> Path:
    """Download ``url`` to ``destination``, which appears only when complete and when its SHA-256 is ``sha256``."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=destination.parent, prefix=destination.name)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as target, urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            digest = hashlib.sha256()
            while piece := response.read(_PIECE):
                digest.update(piece)
                target.write(piece)
        _check(url, digest.hexdigest(), sha256)
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)
    return destination


def cache_folder() -> Path:
    """``$DPVI_CACHE``, or ``dpvi`` under the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpvi"


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked where it is gzipped, whatever its name."""
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(_GZIP) else content


def _given(file: DataFile, path: Path) -> Path:
    found = path if path.is_file() else _in_folder(file, path)
    if found is None:
        raise FileNotFoundError(f"{path} is neither a file nor a folder that holds one of {', '.join(file.names)}.")
    return found


def _in_folder(file: DataFile, folder: Path) -> Path | None:
    return next((folder / name for name in file.names if (folder / name).is_file()), None)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check(place: str | Path, digest: str, expected: str) -> None:
    if digest != expected:
        raise ValueError(
            f"{place} is not the file this loader knows: its SHA-256 is {digest}, expected {expected}. It was not kept "
            "or used; remove it from the cache if it is there, or pass path= with a copy you trust."
        )


def _missing(file: DataFile) -> str:
    ways = f"pass path=, or set {DATA_VARIABLE} to a folder with {file.folder}/{file.names[0]}"
    if file.url is not None and file.sha256 is not None:
        return f"The {file.folder} data are not on this machine: {ways}, or call with download=True ({file.origin})."
    return f"The {file.folder} data are not on this machine: get them from {file.origin} and {ways}."
