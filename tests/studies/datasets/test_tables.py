from __future__ import annotations

import numpy as np
import pytest

from studies.datasets.tables import complete_rows, num_rows, parse_table, select_rows

NAMES = ["age", "work", "label"]


def test_header_comments_blank_lines_and_blanks_are_left_out():
    plain = parse_table("39,State,no\n50,?,yes\n", NAMES, {"age"})
    decorated = parse_table("|comment\nage, work, label\n39, State , no\n\n 50, ?, yes\n", NAMES, {"age"})
    for name in NAMES:
        np.testing.assert_array_equal(plain[name], decorated[name])
    assert plain["age"].dtype == np.float64
    assert plain["work"].tolist() == ["State", "?"]


def test_rows_with_a_missing_category_go():
    table = complete_rows(parse_table("39,State,no\n50,?,yes\n28,Private,yes\n", NAMES, {"age"}))
    assert table["age"].tolist() == [39.0, 28.0]
    assert num_rows(table) == 2
    assert select_rows(table, np.array([1]))["label"].tolist() == ["yes"]


def test_another_number_of_cells_is_refused_by_line():
    with pytest.raises(ValueError, match="Line 2 has 2 cells, expected 3"):
        parse_table("39,State,no\n50,yes\n", NAMES, {"age"})


def test_cells_are_not_quoted_in_errors():
    with pytest.raises(ValueError, match="Column 'age' must hold numbers") as caught:
        parse_table("secret,State,no\n", NAMES, {"age"})
    assert "secret" not in str(caught.value)


def test_an_empty_file_is_refused():
    with pytest.raises(ValueError, match="no rows; expected 3 columns, age to label"):
        parse_table("age,work,label\n", NAMES, {"age"})
