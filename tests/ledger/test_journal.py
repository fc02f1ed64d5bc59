"""The file of a ledger under hostile conditions: what is torn, edited, full, closed or of somebody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dpvi
from dpvi.ledger import Ledger, LedgerError, journal

PLAN = dpvi.plan(epsilon=0.3, delta=1e-6)
WRITER = """
import sys
from pathlib import Path
from dpvi.declared.plan import Plan
from dpvi.ledger import Ledger, LedgerError
ledger, plan = Ledger(sys.argv[1]), Plan.load(sys.argv[2])
for _ in range(8):
    try:
        name = ledger.reserve(plan)
    except LedgerError as error:
        assert "does not hold" in str(error), error
        continue
    print(name)
    ledger.commit(name)
"""


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "people.ledger", epsilon=1.0, delta=1e-6)


def lines_of(ledger):
    return ledger.path.read_bytes().splitlines(keepends=True)


def test_half_a_last_line_is_not_believed_and_the_next_one_takes_its_place(ledger):
    first = ledger.reserve(PLAN)
    before, left = ledger.path.read_bytes(), ledger.epsilon_left
    ledger.commit(first)
    whole = ledger.path.read_bytes()
    for end in (len(before) + 1, len(before) + 40, len(whole) - 2):
        ledger.path.write_bytes(whole[:end])
        assert ledger.entries[first].state == "reserved"  # what is not on the disk has not happened
        assert ledger.epsilon_left == left
        ledger.commit(first)
        assert ledger.entries[first].state == "spent"
        assert len(lines_of(ledger)) == 3


def test_a_last_line_without_its_end_counts_because_it_is_whole(ledger):
    first = ledger.reserve(PLAN)
    ledger.path.write_bytes(ledger.path.read_bytes()[:-1])
    assert ledger.entries[first].state == "reserved"
    ledger.commit(first)
    assert [entry.state for entry in ledger.entries.values()] == ["spent"]


@pytest.mark.parametrize("change", ["edit", "remove", "repeat", "swap", "reorder keys"])
def test_a_changed_line_is_found(ledger, change):
    for _ in range(2):
        ledger.commit(ledger.reserve(PLAN))
    lines = lines_of(ledger)
    if change == "edit":
        lines[1] = lines[1].replace(b'"signal_squared": 0.', b'"signal_squared": 0.0')
    elif change == "remove":
        del lines[2]
    elif change == "repeat":
        lines.insert(2, lines[2])
    elif change == "swap":
        lines[1], lines[3] = lines[3], lines[1]
    else:
        lines[1] = json.dumps(dict(reversed(json.loads(lines[1]).items()))).encode() + b"\n"
    ledger.path.write_bytes(b"".join(lines))
    for call in (lambda: ledger.epsilon_left, lambda: ledger.reserve(PLAN), lambda: Ledger(ledger.path)):
        with pytest.raises(LedgerError, match=r"Line [2-4] of the ledger .* was changed"):
            call()


def test_eight_writers_at_once_never_pass_the_limit_and_lose_no_entry(tmp_path):
    path, plan = tmp_path / "shared.ledger", tmp_path / "plan.json"
    Ledger(path, epsilon=1.0, delta=1e-6)
    small = dpvi.plan(epsilon=0.15, delta=1e-6)
    small.save(plan)
    environment = {**os.environ, "PYTHONPATH": str(Path(dpvi.__file__).parents[1])}
    command = [sys.executable, "-c", WRITER, str(path), str(plan)]
    writers = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    outputs = [writer.communicate(timeout=60) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8, outputs
    ledger = Ledger(path)
    entries = ledger.entries.values()
    # as many as one process alone may make, each known to exactly one writer
    cost = next(iter(entries)).charge.signal_squared
    assert len(entries) == int(ledger.terms.limit.signal_squared / cost) < 64
    assert sorted(name for output, _ in outputs for name in output.split()) == sorted(ledger.entries)
    assert {entry.state for entry in entries} == {"spent"}
    ledger.verify()


@pytest.mark.parametrize("failing", ["write", "half a write", "fsync", "fsync and truncate"])
def test_a_full_disk_reserves_nothing_and_leaves_no_half_line(ledger, monkeypatch, failing):
    ledger.commit(ledger.reserve(PLAN))
    before = ledger.path.read_bytes()
    real_write, real_truncate = os.write, os.ftruncate

    def full(*_):
        raise OSError(28, "No space left on device")

    def half(descriptor, data):
        if len(data) < 30:
            full()
        return real_write(descriptor, data[:25])

    def cannot_shrink(descriptor, length):
        return full() if length < os.fstat(descriptor).st_size else real_truncate(descriptor, length)

    with monkeypatch.context() as patched:
        if failing == "write":
            patched.setattr(journal.os, "write", full)
        elif failing == "half a write":
            patched.setattr(journal.os, "write", lambda d, data: half(d, data) if len(data) > 200 else full())
        else:
            patched.setattr(journal.os, "fsync", full)
        if failing == "fsync and truncate":
            patched.setattr(journal.os, "ftruncate", cannot_shrink)
        with pytest.raises(LedgerError, match=r"could not be written .*No space left"):
            ledger.reserve(PLAN)
    if failing == "fsync and truncate":  # the line is whole and could not be taken back: it counts, which errs safely
        assert [entry.state for entry in ledger.entries.values()] == ["spent", "reserved"]
    else:
        assert ledger.path.read_bytes() == before
    assert ledger.reserve(PLAN)


def test_half_a_write_that_cannot_be_taken_back_is_not_believed(ledger, monkeypatch):
    before, real_write, calls = ledger.path.read_bytes(), os.write, []

    def fails_after_some(descriptor, data):
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real_write(descriptor, data[:60])

    real_truncate = os.ftruncate
    with monkeypatch.context() as patched:
        patched.setattr(journal.os, "write", fails_after_some)
        patched.setattr(journal.os, "ftruncate", lambda d, n: None if calls else real_truncate(d, n))
        with pytest.raises(LedgerError, match="could not be written"):
            ledger.reserve(PLAN)
    assert len(ledger.path.read_bytes()) == len(before) + 60
    assert ledger.entries == {}
    assert ledger.reserve(PLAN) == "run-1"
    assert len(lines_of(ledger)) == 2


def test_a_read_only_file_is_read_and_not_written(ledger):
    run = ledger.reserve(PLAN)
    ledger.path.chmod(0o444)
    assert "run-1" in str(ledger)
    for call in (lambda: ledger.reserve(PLAN), lambda: ledger.commit(run), lambda: ledger.release(run)):
        with pytest.raises(LedgerError, match="may not be written"):
            call()
    with pytest.raises(LedgerError, match="may not be written"), ledger.charging(PLAN):
        raise AssertionError("a run began that nobody charged")


def test_a_clock_that_is_set_back_changes_nothing_but_notes(ledger, monkeypatch):
    from dpvi.ledger import ledger as module

    times = iter(["2031-01-01T00:00:00+00:00", "1999-01-01T00:00:00+00:00", "1970-01-01T00:00:00+00:00"])
    monkeypatch.setattr(module, "now", lambda: next(times))
    first = ledger.reserve(PLAN)
    ledger.commit(first)
    second = ledger.reserve(PLAN)
    assert [entry.name for entry in ledger.entries.values()] == [first, second] == ["run-1", "run-2"]
    assert [entry.state for entry in ledger.entries.values()] == ["spent", "reserved"]


def test_the_file_of_another_ledger_is_refused(ledger, tmp_path):
    other = Ledger(tmp_path / "others.ledger", epsilon=1.0, delta=1e-6)
    run = ledger.reserve(PLAN)
    own = ledger.path.read_bytes()
    ledger.path.write_bytes(other.path.read_bytes())
    for call in (lambda: ledger.reserve(PLAN), lambda: ledger.commit(run), lambda: str(ledger)):
        with pytest.raises(LedgerError, match="is now that of another one, 'others'"):
            call()
    # its lines do not follow this ledger's first one either
    ledger.path.write_bytes(b"".join([*own.splitlines(keepends=True)[:1], *other.path.read_bytes().splitlines(True)]))
    with pytest.raises(LedgerError, match="Line 2"):
        ledger.reserve(PLAN)
    with pytest.raises(LedgerError, match=r"with epsilon=1\.0, and 2\.0 was given"):
        Ledger(other.path, epsilon=2.0, delta=1e-6)
    with pytest.raises(LedgerError, match="with name='others'"):
        Ledger(other.path, name="people")


def test_an_unknown_version_and_other_files_are_refused(tmp_path):
    future = tmp_path / "future.ledger"
    journal.create(future, {"format": "dpvi ledger", "version": 2})
    with pytest.raises(LedgerError, match="version 2, and this dpvi reads version 1"):
        Ledger(future)
    for number, content in enumerate([b"", b"{}\n", b"people,age\n1,2\n", b"\x00\xff" * 50, PLAN.to_json().encode()]):
        path = tmp_path / f"{number}.ledger"
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="is not a ledger of dpvi"):
            Ledger(path, epsilon=1.0, delta=1e-6)
        assert path.read_bytes() == content
    strange = tmp_path / "strange.ledger"
    journal.create(strange, {"format": "dpvi ledger", "version": 1, "epsilon": 1.0})
    with pytest.raises(LedgerError, match="was not written by dpvi"):
        Ledger(strange)


def test_a_lost_file_is_an_error_and_not_a_new_budget(ledger):
    ledger.commit(ledger.reserve(PLAN))
    ledger.path.unlink()
    for call in (lambda: ledger.reserve(PLAN), lambda: Ledger(ledger.path), lambda: ledger.epsilon_left):
        with pytest.raises(LedgerError, match="would forget what was spent"):
            call()
