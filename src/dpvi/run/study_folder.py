"""A folder that keeps a study group by group: result files, and what tells one study from another.

``study.json`` says of which study the folder is. A group is a folder of result files, made under a name that nobody
else uses, brought to the disk and then renamed: it is there as a whole or not at all, even where the power fails. What
a killed process leaves behind, under names that end in ``.partial``, is in nobody's way and can be removed.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.declared.plan import Plan
from dpvi.posterior import storage
from dpvi.posterior.result import Result

_FORMAT = "dpvi study 2"


def study_key(folder: Path) -> bytes:
    """The key of a study's fingerprints: 256 random bits in a file beside its folder, made on the first call.

    A key derived from the seeds would be as easily guessed as they are, and whoever has it can check a guess about the
    records. Inside the folder it would be published with the results.
    """
    file = folder.absolute()
    file = file.with_name(f"{file.name}.key")
    if not file.exists():
        if any(folder.glob("**/study.json")):
            raise ValueError(
                f"{folder} keeps a study, but the key of its fingerprints is missing: {file}. Put it back, or give "
                "fit_many another folder to begin a new study."
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = own_name(file)
        temporary.touch(mode=0o600)
        temporary.write_text(secrets.token_hex(32) + "\n")
        to_disk(temporary)
        try:
            os.link(temporary, file)  # unlike a rename it leaves alone what another process has put there meanwhile
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    try:
        return bytes.fromhex(file.read_text())
    except ValueError:
        raise ValueError(f"{file} is damaged: expected the key of a study's fingerprints.") from None


def fingerprint(secret: bytes, name: str, parts: Sequence[Any]) -> str:
    """HMAC-SHA256 of arrays, keys and texts, under ``secret``; one that differs shows that the parts differ.

    Guarantees
    ----------
    Without the secret it cannot be told from a random number, so it says nothing about what is in the parts.
    """
    digest = hmac.new(secret, name.encode(), "sha256")
    for part in parts:
        if isinstance(part, str):
            content = part.encode()
            digest.update(f"text {len(content)}".encode())
        else:
            array = np.ascontiguousarray(part)
            digest.update(f"array {array.shape} {array.dtype.str}".encode())
            content = array.data if array.size else b""
        digest.update(content)
    return digest.hexdigest()


class StudyFolder:
    """The groups of one study.

    Parameters
    ----------
    path
        A folder, made if it is not there.
    settings
        What has to be the same and may be read by all: values that JSON holds.
    fingerprints
        What has to be the same and may be read by nobody: from :func:`fingerprint`.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], fingerprints: Mapping[str, str]) -> None:
        self.path = path
        content = {"format": _FORMAT, "settings": dict(settings), "fingerprints": dict(fingerprints)}
        content = json.loads(json.dumps(content))  # as it will be read back
        path.mkdir(parents=True, exist_ok=True)
        file = path / "study.json"
        if file.exists():
            self._require_same(file, content)
            return
        if not all(_unfinished(each, file.name) for each in path.iterdir()):
            raise ValueError(f"{path} is not empty and not the folder of a study; give fit_many a folder of its own.")
        temporary = own_name(file)
        temporary.write_text(json.dumps(content, indent=2) + "\n")
        to_disk(temporary)
        os.replace(temporary, file)
        to_disk(path)

    def group(self, number: int, size: int, plan: Plan) -> list[dict[str, Any]] | None:
        """The fields of the ``size`` results of group ``number``, all of ``plan``; ``None`` where it is not there."""
        folder = self._folder(number)
        if not folder.exists():
            return None
        if sorted(each.name for each in folder.iterdir()) != [_file(k) for k in range(size)]:
            raise ValueError(f"{folder} was changed: expected {size} results. Remove it to fit this group again.")
        found = [storage.load(folder / _file(k)) for k in range(size)]
        if any(each["plan"] != plan for each in found):
            raise ValueError(
                f"{folder} was changed: it has results of another plan. Remove it to fit this group again."
            )
        return found

    def keep(self, number: int, results: Sequence[Result]) -> None:
        """Write a group, whole or not at all; one that another process has kept meanwhile holds the same, and stays."""
        folder = self._folder(number)
        temporary = own_name(folder)
        temporary.mkdir()
        try:
            for k, result in enumerate(results):
                result.save(temporary / _file(k))
                to_disk(temporary / _file(k))
            to_disk(temporary)
            try:
                os.rename(temporary, folder)
            except OSError:  # the other process was here first
                if not folder.is_dir():
                    raise
            to_disk(self.path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _folder(self, number: int) -> Path:
        return self.path / f"group-{number:05d}"

    def _require_same(self, file: Path, wanted: dict[str, Any]) -> None:
        try:
            found = json.loads(file.read_text())
            known = found["format"] == _FORMAT
            differ = [] if not known else _different(found["settings"], wanted["settings"])
            if known and not differ:
                differ = _different(found["fingerprints"], wanted["fingerprints"])
        except (ValueError, KeyError, TypeError):
            known, differ = False, []
        if not known:
            raise ValueError(f"{file} is damaged or of another version; give fit_many another folder.")
        if differ:
            raise ValueError(
                f"{self.path} keeps another study; these differ: {', '.join(differ)}. Call fit_many as the study was "
                "begun to go on with it, or give another folder to begin a new one."
            )


def _different(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return [name for name in wanted if name not in found or found[name] != wanted[name]]


def own_name(path: Path) -> Path:
    """Where ``path`` is made; process numbers would not do, for every container counts its own."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")


def _unfinished(path: Path, name: str) -> bool:
    """Whether ``path`` is what a process left that was killed while it wrote ``name``."""
    return path.name.startswith(f"{name}.") and path.name.endswith(".partial")


def to_disk(path: Path) -> None:
    """Wait until a file, or the list of names of a folder, is on the disk and not in memory alone."""
    if path.is_dir() and os.name == "nt":
        return  # Windows opens no folders
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _file(k: int) -> str:
    return f"{k:05d}.npz"
