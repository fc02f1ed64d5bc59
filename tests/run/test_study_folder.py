"""Groups are kept whole or not at all: beside other processes, after a kill at any point, and when the power fails."""

from __future__ import annotations

import os
from typing import Any

import pytest

from dpvi.run.study_folder import StudyFolder

SETTINGS, FINGERPRINTS = {"number of data sets": 2}, {"seeds": "00"}


class _Saved:
    def __init__(self, text, meanwhile):
        self.text, self.meanwhile = text, meanwhile

    def save(self, path):
        self.meanwhile()
        path.write_text(self.text)


def saved(text, meanwhile=lambda: None) -> Any:
    """Stands for a result; ``meanwhile`` happens while it is written."""
    return _Saved(text, meanwhile)


@pytest.fixture
def opened(tmp_path):
    return StudyFolder(tmp_path / "study", SETTINGS, FINGERPRINTS)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def killed():
    raise KeyboardInterrupt


def test_a_process_with_the_same_number_is_in_nobodys_way(opened, monkeypatch):
    """Every container counts its processes from 1, and may share a folder with others."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    # what a process leaves that was killed while it wrote a group, whatever it called it
    monkeypatch.setattr("dpvi.run.study_folder.shutil.rmtree", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        opened.keep(0, [saved("half", killed)])
    monkeypatch.undo()
    assert any(name.endswith(".partial") for name in names(opened.path)), "power: something is left"
    monkeypatch.setattr(os, "getpid", lambda: 1)
    other = StudyFolder(opened.path, SETTINGS, FINGERPRINTS)
    opened.keep(0, [saved("mine", lambda: other.keep(0, [saved("theirs"), saved("theirs")])), saved("mine")])
    assert [path.read_text() for path in sorted((opened.path / "group-00000").iterdir())] == ["theirs", "theirs"]


def test_whoever_loses_a_race_goes_on(opened, monkeypatch):
    rename = os.rename

    def late(source, target):
        """Another process renames its own folder in the last moment."""
        target.mkdir()
        (target / "00000.npz").write_text("theirs")
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    opened.keep(0, [saved("mine")])
    assert names(opened.path) == ["group-00000", "study.json"]
    assert (opened.path / "group-00000" / "00000.npz").read_text() == "theirs"


def test_a_folder_that_cannot_be_renamed_is_an_error(opened, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        opened.keep(0, [saved("mine")])
    assert names(opened.path) == ["study.json"]


def test_a_study_killed_while_it_said_what_it_is_begins_again(tmp_path, monkeypatch):
    for left in ("study.json.partial", "study.json.0123.partial"):  # the first by older versions
        (tmp_path / left).write_text("{")
    StudyFolder(tmp_path, SETTINGS, FINGERPRINTS)
    StudyFolder(tmp_path, SETTINGS, FINGERPRINTS)
    with pytest.raises(ValueError, match="these differ: number of data sets"):
        StudyFolder(tmp_path, {"number of data sets": 3}, FINGERPRINTS)


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced, moves, fsync = set(), [], os.fsync

    def watched(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def watch(move):
        def moving(source, target):
            moves.append(target.name)
            parts = [source, *(source.iterdir() if source.is_dir() else [])]
            missing = [part.name for part in parts if part.stat().st_ino not in synced]
            assert not missing, f"not on the disk: {missing}"
            synced.discard(target.parent.stat().st_ino)
            move(source, target)

        return moving

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(os, "rename", watch(os.rename))
    monkeypatch.setattr(os, "replace", watch(os.replace))
    folder = StudyFolder(tmp_path, SETTINGS, FINGERPRINTS)
    assert tmp_path.stat().st_ino in synced, "the new name itself must be on the disk"
    folder.keep(0, [saved("one"), saved("two")])
    assert tmp_path.stat().st_ino in synced
    assert moves == ["study.json", "group-00000"]
