"""What a person drops and types, and the one sentence where it does not do."""

from __future__ import annotations

import pytest

from dpvi.studio.declarations import Declared, rows_from, schema_of
from dpvi.studio.header import header_of
from dpvi.studio.question import families_for, formula_of
from dpvi.studio.steps.columns import declared
from dpvi.table import Boolean, Categorical, Count, Numeric, Ordinal, Schema, SchemaError

SECRET = "Ada Lovelace"
FILES = {
    "an Excel workbook": (b"PK\x03\x04rest", "Excel workbook"),
    "UTF-16": ("age,sex\n".encode("utf-16"), "UTF-16"),
    "Latin-1": ("größe,sex\n".encode("latin-1"), "not text in UTF-8"),
    "semicolons": (b"age;sex\n1;2\n", "separated by semicolons"),
    "tabs": (b"age\tsex\n1\t2\n", "separated by tabs"),
    "no header": (f"{SECRET},41\n".encode(), "numbers and not names"),
    "nothing": (b"\n", "is empty"),
    "a column without a name": (b"age,,sex\n", "has no name"),
    "the same name twice": (b"age,age\n", "names a column twice"),
    "bytes": (b"age,\x00\x01\n", "bytes that no text has"),
}


def test_the_first_line_is_all_that_is_read(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes('\ufeffage,"pay, in thousands",sex\r\n'.encode() + b"\xff\xfe not text at all")
    assert header_of(path, "people.csv") == ("age", "pay, in thousands", "sex")


@pytest.mark.parametrize("case", FILES)
def test_other_files_are_refused_in_one_sentence(case, tmp_path):
    content, words = FILES[case]
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as found:
        header_of(path, "people.csv")
    assert "people.csv" in str(found.value)
    assert SECRET not in str(found.value)


ROWS = [
    Declared("age", "numeric", "18", "90"),
    Declared("priors", "count", upper="20", missing=True),
    Declared("sex", "categorical", levels="f, m, other", other="other"),
    Declared("grade", "ordinal", levels='low\n"middle, or so", high'),
    Declared("ill", "boolean"),
    Declared("name"),
]
COLUMNS = {
    "age": Numeric(18, 90),
    "priors": Count(20, missing=True),
    "sex": Categorical(("f", "m", "other"), other="other"),
    "grade": Ordinal(("low", "middle, or so", "high")),
    "ill": Boolean(),
}


def test_a_form_becomes_a_schema_and_comes_back(tmp_path):
    schema = schema_of(ROWS)
    assert schema == Schema(COLUMNS)
    assert declared(schema)[1] == "priors: count"
    schema.save(tmp_path / "schema.toml")
    again = [Declared(row.name) for row in ROWS]
    rows_from(tmp_path / "schema.toml", again)
    assert schema_of(again) == schema
    with pytest.raises(SchemaError, match="which the table does not have"):
        rows_from(tmp_path / "schema.toml", again[1:])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (Declared("age", "numeric", "", "90"), "smallest value of age is lacking"),
        (Declared("age", "numeric", "18", "ninety"), "must be a number with a point"),
        (Declared("age", "numeric", "90", "18"), "lower < upper"),
        (Declared("age", "numeric", "18", "inf"), "Bounds must be finite"),
        (Declared("age", "count", upper="2.5"), "must be a whole number"),
        (Declared("sex", "categorical", levels="f"), "at least two different levels"),
        (Declared("sex", "categorical", levels="f, f"), "at least two different levels"),
        (Declared("sex", "categorical", levels="f, m", other="x"), "is not among the levels"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(row, words):
    with pytest.raises(SchemaError, match=words):
        schema_of([row, Declared("ill", "boolean")])


def test_one_column_is_no_question():
    with pytest.raises(SchemaError, match="at least two columns"):
        schema_of([Declared("ill", "boolean"), Declared("name")])


def test_a_question_becomes_a_formula():
    schema = Schema({**COLUMNS, "pay per hour": Numeric(1, 100), "town": Categorical(("a", "b"))})
    assert formula_of(schema, "ill", ["age", "sex", "pay per hour"]) == "ill ~ age + C(sex) + `pay per hour`"
    families = {name: families_for(schema, name) for name in schema.columns}
    assert families["ill"] == families["town"] == ["bernoulli"]
    assert families["sex"] == []
    assert families["grade"] == ["ordinal"]
    assert families["priors"][0] == "poisson"
    assert families["age"][0] == "gaussian"
    assert "gamma" in families["pay per hour"]
