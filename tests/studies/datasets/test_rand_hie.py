from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from studies.datasets import rand_hie
from studies.datasets.rand_hie import _NAMES


def write(folder: Path, rows: list[dict[str, str]]) -> Path:
    lines = [",".join(_NAMES), *(",".join(row.get(name, "0") for name in _NAMES) for row in rows)]
    path = folder / "rand_hie.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_one_row_per_person_is_the_first_year(tmp_path: Path):
    rows = [("8", "2", "1"), ("8", "1", "2"), ("5", "3", "3"), ("8", "3", "4")]
    path = write(tmp_path, [{"zper": person, "year": year, "mdvis": visits} for person, year, visits in rows])
    assert rand_hie(tmp_path)["mdvis"].tolist() == [2.0, 3.0]
    assert rand_hie(path, all_years=True)["mdvis"].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_an_empty_cell_is_no_number_and_a_word_is_refused(tmp_path: Path):
    table = rand_hie(write(tmp_path, [{"educdec": ""}]))
    assert np.isnan(table["educdec"]).tolist() == [True]
    assert len(table) == 45
    with pytest.raises(ValueError, match="'income' must hold numbers"):
        rand_hie(write(tmp_path, [{"income": "much"}]))


def test_real_rand_hie(real_data: Callable[[str], Path]):
    every = rand_hie(real_data("rand_hie"), all_years=True)
    assert len(every["zper"]) == 20_190
    assert every["mdvis"].mean() == pytest.approx(2.860, abs=5e-4)
    assert int(every["binexp"].sum()) == 15_737
    first = rand_hie(real_data("rand_hie"))
    assert len(first["zper"]) == len(np.unique(every["zper"])) == 5_912


def test_rand_hie_is_not_downloaded(no_data: Path):
    with pytest.raises(FileNotFoundError, match="get them from the data of Cameron and Trivedi"):
        rand_hie()
