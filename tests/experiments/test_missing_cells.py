"""A study cut short goes on with the first cell that has no row, and keeps each as soon as it is there."""

from __future__ import annotations

import json
import warnings
from typing import NamedTuple

import pytest

from experiments.common import missing_cells
from experiments.common.missing_cells import fit_in_parts, folder_of, ignoring, run_missing, timed


class Cell(NamedTuple):
    variant: str
    epsilon: float


CELLS = [Cell("aligned", 1.0), Cell("aligned", 2.0), Cell("vanilla", 1.0)]


def test_what_was_kept_is_not_done_again_and_each_row_is_kept_at_once():
    ran, kept = [], []

    def row_of(cell):
        ran.append(cell)
        if len(ran) == 2:
            raise KeyboardInterrupt
        return {"score": len(ran)}

    def keep(content):
        kept.append(json.dumps(content))

    with pytest.raises(KeyboardInterrupt):
        run_missing(CELLS, {"cells": []}, keep, row_of)
    content = json.loads(kept[-1])
    assert content == {"cells": [{"variant": "aligned", "epsilon": 1.0, "score": 1}]}
    run_missing(CELLS, content, keep, row_of)
    assert ran == [CELLS[0], CELLS[1], CELLS[1], CELLS[2]]
    assert json.loads(kept[-1]) == content
    assert [len(json.loads(text)["cells"]) for text in kept] == [1, 2, 3]
    run_missing(CELLS, content, keep, row_of)
    assert len(ran) == 4


def test_parts_of_a_killed_cell_are_not_run_again_and_count_the_seconds_they_took(tmp_path, monkeypatch):
    clock, ran = iter(range(1000)), []
    monkeypatch.setattr(missing_cells.time, "perf_counter", lambda: float(next(clock)))

    def fit(numbers, directory):
        """As ``fit_many``: what is in the directory is read."""
        if not directory.exists():
            if list(numbers) == [4, 5] and len(ran) < 3:
                raise KeyboardInterrupt
            next(clock)  # a fit takes two seconds, reading it one
            ran.append(list(numbers))
            directory.mkdir(parents=True)
        return [10 * number for number in numbers]

    def row_of(cell):
        results, seconds = fit_in_parts(fit, range(2, 7), 2, folder_of(tmp_path, cell))
        return {"results": results, "seconds": seconds}

    content = {"cells": []}
    with pytest.raises(KeyboardInterrupt):
        run_missing(CELLS[:1], content, len, row_of, tmp_path)
    assert ran == [[2, 3]]
    ran.append("taken up")
    ran.append("again")
    run_missing(CELLS[:1], content, len, row_of, tmp_path)
    assert ran == [[2, 3], "taken up", "again", [4, 5], [6]]
    assert content["cells"][0]["results"] == [20, 30, 40, 50, 60]
    assert content["cells"][0]["seconds"] == 6.0, "reading instead of fitting would be 5"
    assert list(tmp_path.iterdir()) == [], "a cell with a row needs no runs"


def test_without_a_folder_nothing_is_kept():
    assert folder_of(None, CELLS[0]) is None
    assert fit_in_parts(lambda numbers, directory: [directory, *numbers], range(3), 3, None)[0] == [None, 0, 1, 2]


def test_timed_gives_the_value_and_a_time():
    value, seconds = timed(divmod, 7, 2)
    assert value == (3, 1)
    assert seconds >= 0


def test_only_the_named_warnings_are_silenced():
    with ignoring(DeprecationWarning, FutureWarning):
        warnings.warn("silent", FutureWarning, stacklevel=1)
        with pytest.raises(RuntimeWarning):  # warnings are errors in these tests
            warnings.warn("loud", RuntimeWarning, stacklevel=1)
    with pytest.raises(FutureWarning):
        warnings.warn("loud again", FutureWarning, stacklevel=1)
