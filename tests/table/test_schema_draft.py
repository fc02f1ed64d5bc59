"""A draft marks everything it read from records and is refused until someone confirms it; ``dpvi schema`` writes it."""

from __future__ import annotations

import argparse

import pytest

from dpvi.cli import schema as command
from dpvi.table import Boolean, Categorical, Date, Numeric, Schema, SchemaError, draft_schema

CSV = """name,age,weight,job,ill,day,same
Ann,23,61.5,farm,true,2001-02-03,1
Bob,77,80.25,"town, city",false,1999-12-31,1
Cy,?,70,farm,true,2003-05-05,1
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(CSV)
    return path


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    options = parser.parse_args(["schema", *arguments])
    return options.func(options)


def test_a_draft_guesses_kinds_and_marks_what_it_read(table, tmp_path):
    text = draft_schema(table, missing_markers=("", "?"), max_levels=2)
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(SchemaError, match="confirmed_public = true"):
        Schema.load(path)
    for line in text.splitlines():
        read = line.startswith(("kind", "lower", "upper", "levels", "integer", "missing ="))
        assert read == line.endswith("# READ FROM THE RECORDS")
    path.write_text(text.replace("confirmed_public = false", "confirmed_public = true"))
    schema = Schema.load(path)
    assert schema.columns.keys() == {"age", "weight", "job", "ill", "day"}
    assert "'name' is left out" in text
    assert schema["age"] == Numeric(20, 80, integer=True, missing=True)
    assert isinstance(schema["weight"], Numeric)
    assert schema["job"] == Categorical(("farm", "town, city"))
    assert schema["ill"] == Boolean()
    assert isinstance(schema["day"], Date)
    assert (schema["day"].lower.isoformat(), schema["day"].upper.isoformat()) == ("1999-01-01", "2003-12-31")
    schema.encode(table, outside="raise")


def test_a_typed_file_keeps_its_dtypes(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    columns = {"a": pyarrow.array([1, 5, 9], pyarrow.int16()), "b": pyarrow.array([0.5, 2.0, 3.0], pyarrow.float32())}
    parquet.write_table(pyarrow.table(columns), path)
    draft = tmp_path / "draft.toml"
    draft.write_text(draft_schema(path).replace("public = false", "public = true"))
    schema = Schema.load(draft)
    decoded = schema.decode(schema.encode(path, outside="raise"), to="arrow")
    assert decoded.schema.field("a").type == pyarrow.int16()
    assert decoded.schema.field("b").type == pyarrow.float32()


def test_the_command_writes_a_draft_once(table, tmp_path, capsys):
    path = tmp_path / "schema.toml"
    assert run("draft", str(table), "--missing", "?", "--output", str(path)) == 0
    assert "Replace or confirm" in capsys.readouterr().out
    assert path.read_text() == draft_schema(table, missing_markers=("", "?"))
    with pytest.raises(FileExistsError):
        run("draft", str(table), "--output", str(path))
    assert run("draft", str(table)) == 0
    assert capsys.readouterr().out == draft_schema(table)


def test_the_command_checks_a_table(table, tmp_path, capsys):
    path = tmp_path / "schema.toml"
    Schema({"ill": Boolean(), "job": Categorical(("farm", "town, city"))}).save(path)
    assert run("check", str(path), str(table)) == 0
    assert "SENSITIVE" in capsys.readouterr().err
    Schema({"weight": Numeric(0, 75)}).save(path)
    with pytest.raises(SchemaError, match="'weight'"):
        run("check", str(path), str(table))


def test_nothing_to_describe_is_said(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("same\n1\n1\n")
    with pytest.raises(SchemaError, match="by hand"):
        draft_schema(path)
    with pytest.raises(SchemaError, match=r"\.csv or \.parquet"):
        draft_schema(tmp_path / "table.txt")
