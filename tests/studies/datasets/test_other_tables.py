from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from studies.datasets import abalone, census_income, census_income_labels, military_poverty, us_census_1990
from studies.datasets.census_income import FILES, read_census_income
from studies.datasets.files import locate

CENSUS_ROW = (
    "73, Not in universe, 0, 0, High school graduate, 0, Not in universe, Widowed, Not in universe or children, "
    "Not in universe, White, NA, Female, Not in universe, Not in universe, Not in labor force, 0, 0, 0, Nonfiler, "
    "Not in universe, Not in universe, Other Rel 18+ ever marr not in subfamily, Other relative of householder, "
    "1700.09, ?, ?, ?, Not in universe under 1 year old, ?, 0, Not in universe, United-States, United-States, "
    "United-States, Native- Born in the United States, 0, Not in universe, 2, 0, 95, {label}.\n"
)


def test_abalone_with_and_without_a_header(tmp_path: Path):
    row = "M,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,15\n"
    (tmp_path / "abalone.data").write_text(row)
    (tmp_path / "named.csv").write_text(
        "Sex,Length,Diameter,Height,Whole_weight,Shucked_weight,Viscera_weight,Shell_weight,Rings\n" + row
    )
    for path in (tmp_path, tmp_path / "named.csv"):
        table = abalone(path)
        assert (table["Sex"].tolist(), table["Rings"].tolist()) == (["M"], [15.0])


def test_real_abalone(real_data: Callable[[str], Path]):
    table = abalone(real_data("abalone"))
    assert len(table["Rings"]) == 4177
    assert table["Rings"].mean() == pytest.approx(9.934, abs=5e-4)
    assert [int(np.sum(table["Sex"] == sex)) for sex in "MIF"] == [1528, 1342, 1307]
    assert np.mean(table["Rings"] >= 10) == pytest.approx(0.498, abs=5e-4)


def test_census_income_original_layout(tmp_path: Path):
    (tmp_path / "census-income.data").write_text(CENSUS_ROW.format(label="- 50000"))
    (tmp_path / "census-income.test").write_text(CENSUS_ROW.format(label="50000+"))
    train, test = census_income(tmp_path)
    assert len(train) == 42
    assert (census_income_labels(train).tolist(), census_income_labels(test).tolist()) == ([0], [1])
    assert train["hispanic_origin"].tolist() == ["NA"]  # a level, not a missing value
    assert train["veterans_benefits"].tolist() == ["2"]  # a code
    assert train["instance_weight"].tolist() == [1700.09]


def test_real_census_income(real_data: Callable[[str], Path]):
    table = read_census_income(locate(FILES["test"], real_data("census_income_kdd")))
    assert len(table["age"]) == 99762
    assert int(census_income_labels(table).sum()) == 6186


def test_census_income_is_not_downloaded(no_data: Path):
    with pytest.raises(FileNotFoundError, match="get them from the UCI repository"):
        census_income()


@pytest.fixture
def small_census(tmp_path: Path) -> Path:
    names = "caseid,dAncstry1,dAncstry2,iMarital,dAge,iFertil,iEnglish,iImmigr,iYearsch,iSex,iVietnam,iKorean,iMobillim"
    rows = [f"{i},1,1,0,2,0,0,0,1,1,0,0,0,{military},{poverty}" for i, (military, poverty) in enumerate(PERSONS)]
    path = tmp_path / "USCensus1990.data.txt"
    path.write_text("\n".join([names + ",iMilitary,dPoverty", *rows]) + "\n")
    return path


PERSONS = ((0, 0), (1, 2), (2, 1), (3, 0), (4, 1))


def test_military_poverty_keeps_those_who_served(small_census: Path):
    table = military_poverty(small_census)
    assert table["poverty"].tolist() == [0, 1, 1]
    assert len(table) == 13
    assert {len(column) for column in table.values()} == {3}


def test_us_census_reads_the_columns_asked_for(small_census: Path):
    table = us_census_1990(small_census, columns=["dPoverty", "caseid"])
    assert list(table) == ["dPoverty", "caseid"]
    assert table["caseid"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="no column 'dRings'"):
        us_census_1990(small_census, columns=["dRings"])


def test_real_us_census_excerpt(real_data: Callable[[str], Path]):
    folder = real_data("uscensus1990_sample")
    table = us_census_1990(folder)
    assert len(table) == 69
    assert (table["caseid"][0], table["caseid"][-1], len(table["caseid"])) == (10000, 2468284, 221)
    assert len(military_poverty(folder)["poverty"]) == 26
