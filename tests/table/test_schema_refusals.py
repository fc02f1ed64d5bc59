"""What a schema refuses, and that every sentence names the column and a remedy but no value of a record."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

import dpvi
from dpvi.table import Boolean, Categorical, Count, Date, Design, Numeric, Ordinal, Schema, SchemaError

SCHEMA = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "job": Categorical(("a", "b", "rest"), other="rest"),
        "town": Categorical(("x", "y")),
        "n": Count(3),
        "ill": Boolean(),
        "born": Date(datetime.date(1900, 1, 1), datetime.date(2000, 1, 1)),
    }
)
GOOD = {"age": [40], "job": ["a"], "town": ["x"], "n": [2], "ill": [True], "born": ["1950-01-01"]}


def changed(**columns):
    return {**GOOD, **columns}


@pytest.mark.parametrize("column", [dpvi.Numeric(0, 80), dpvi.OneHot(3)])
def test_columns_of_histograms_and_of_tables_are_told_apart(column):
    """Both kinds have a Numeric, so a sentence that names the class alone would not help."""
    with pytest.raises(SchemaError, match=r"'age': .*columns of a table come from dpvi\.table"):
        Schema({"age": column})
    with pytest.raises(TypeError, match=r"from dpvi, not from dpvi\.table"):
        dpvi.plan(1.0, 1e-5, 0.1, 1000, 1.0, covariates=[Numeric(0, 80)])


def test_values_outside_are_clamped_without_a_word(capsys):
    table = changed(age=[777], job=["secret"], n=[99], born=["2091-01-01"])
    decoded = SCHEMA.decode(SCHEMA.encode(table))
    assert [decoded[name][0] for name in ("age", "job", "n")] == [100, "rest", 3]
    assert decoded["born"][0].item() == datetime.date(2000, 1, 1)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("columns", "name", "words", "value"),
    [
        ({"age": [777]}, "age", "widen the bounds", "777"),
        ({"age": [40.5]}, "age", "integer = false", "40.5"),
        ({"job": ["secret"]}, "job", "declared levels", "secret"),
        ({"n": [99]}, "n", "0, 1, …, 3", "99"),
        ({"born": ["2091-01-01"]}, "born", "widen", "2091"),
    ],
)
def test_values_outside_are_refused_on_request(columns, name, words, value):
    SCHEMA.encode(changed(**columns))
    with pytest.raises(SchemaError, match=words) as caught:
        SCHEMA.encode(changed(**columns), outside="raise")
    assert repr(name) in str(caught.value)
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "name", "words"),
    [
        ({"town": ["elsewhere"]}, "town", "declare other"),
        ({"age": [None]}, "age", "missing = true"),
        ({"age": ["forty"]}, "age", "must hold numbers"),
        ({"ill": ["perhaps"]}, "ill", "declare it categorical"),
        ({"born": ["yesterday"]}, "born", "must hold dates"),
    ],
)
def test_values_that_mean_nothing_are_always_refused(columns, name, words):
    with pytest.raises(SchemaError, match=words) as caught:
        SCHEMA.encode(changed(**columns))
    assert repr(name) in str(caught.value)


def test_tables_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(SchemaError, match="lacks 'town'"):
        SCHEMA.encode({name: values for name, values in GOOD.items() if name != "town"})
    with pytest.raises(SchemaError, match="lengths differ"):
        SCHEMA.encode(changed(age=[1, 2]))
    with pytest.raises(SchemaError, match="no records"):
        SCHEMA.encode({name: [] for name in GOOD})
    with pytest.raises(TypeError, match="data frame"):
        SCHEMA.encode(np.zeros((2, 2)))
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(SchemaError, match="is empty"):
        SCHEMA.encode(empty)
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("age,job\n1\n")
    with pytest.raises(SchemaError, match="number of cells"):
        SCHEMA.encode(ragged)
    with pytest.raises(SchemaError, match=r"\.csv or \.parquet"):
        SCHEMA.encode("table.xlsx")


def test_arrays_that_do_not_fit_are_refused():
    arrays = SCHEMA.encode(GOOD)
    with pytest.raises(SchemaError, match="'age'"):
        SCHEMA.decode({**arrays, "age": np.array([np.nan])})
    with pytest.raises(SchemaError, match="lack 'n'"):
        SCHEMA.decode({name: leaf for name, leaf in arrays.items() if name != "n"})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Numeric(3, 3), "lower < upper"),
        (lambda: Numeric(0, float("inf")), "finite"),
        (lambda: Numeric(0.5, 3, integer=True), "whole"),
        (lambda: Numeric(0, 300, integer=True, dtype="int8"), "cannot hold"),
        (lambda: Numeric(0, 3, dtype="int8"), "'float32'"),
        (lambda: Count(0), "from 1"),
        (lambda: Categorical(("a",)), "at least two"),
        (lambda: Categorical(("a", 1)), "all texts or all whole"),
        (lambda: Ordinal("abc"), "at least two"),
        (lambda: Categorical(("a", "b"), other="c"), "add it"),
        (lambda: Date(datetime.date(2000, 1, 1), datetime.date(2000, 1, 1)), "lower < upper"),
        (lambda: Schema({}), "at least one column"),
        (lambda: Schema({"x": 3}), "declarations"),
        (lambda: Schema({"x": Boolean(missing=True), "x_observed": Boolean()}), "rename"),
        (lambda: Design(SCHEMA, ("age", "age")), "once"),
        (lambda: Design(SCHEMA, ("job",), {"job": "z"}), "one of their levels"),
        (lambda: Design(SCHEMA, ("nothing",)), "no column 'nothing'"),
    ],
)
def test_declarations_without_sense_are_refused(make, words):
    with pytest.raises(SchemaError, match=words):
        make()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("columns = [", "not TOML"),
        ("[columns]\n[rows]", "got 'rows'"),
        ("format_version = 9\n[columns.a]\nkind = 'boolean'", "format 9"),
        ("confirmed_public = false\n[columns.a]\nkind = 'boolean'", "draft"),
        ("[columns.a]\nkind = 'colour'", "Column 'a' needs kind"),
        ("[columns.a]\nkind = 'boolean'\nlevels = [1]", "got 'levels'"),
        ("[columns.a]\nkind = 'numeric'\nlower = 3", "need lower, upper"),
        ("[columns.a]\nkind = 'count'\nupper = 'many'", "Column 'a': A count"),
    ],
)
def test_files_that_are_no_schema_are_refused(tmp_path, text, words):
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(SchemaError, match=words):
        Schema.load(path)
