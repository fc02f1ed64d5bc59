"""A table becomes arrays and comes back, for every kind of column and every make of table."""

from __future__ import annotations

import datetime
import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from dpvi.table import Boolean, Categorical, Count, Date, Design, Numeric, Ordinal, Schema

DAY = datetime.date
MIXED = Schema(
    {
        "age": Numeric(0, 100, integer=True),
        "income": Numeric(-5.0, 5.0, missing=True),
        "job": Categorical(("farm", "town, or city", "else"), other="else"),
        "school": Ordinal((1, 2, 3), missing=True),
        "visits": Count(12, dtype="int32", missing=True),
        "ill": Boolean(missing=True),
        "born": Date(DAY(1900, 1, 1), DAY(2020, 12, 31), missing=True),
    }
)
TABLE = {
    "age": [0, 33, 100],
    "income": [1.25, None, -5.0],
    "job": ["town, or city", "farm", "else"],
    "school": [3, None, 1],
    "visits": [12, 0, None],
    "ill": [True, None, False],
    "born": [DAY(1950, 6, 1), None, DAY(2020, 12, 31)],
}

texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=6).filter(lambda t: t == t.strip())
whole = st.integers(-(10**9), 10**9)
days = st.dates(DAY(1700, 1, 1), DAY(2200, 1, 1))


@st.composite
def columns(draw):
    """A column and a strategy for its values."""
    missing = draw(st.booleans())
    kind = draw(st.sampled_from(["numeric", "integer", "count", "categorical", "ordinal", "boolean", "date"]))
    if kind in ("numeric", "integer", "date"):
        lower, upper = sorted(draw(st.lists(days if kind == "date" else whole, min_size=2, max_size=2, unique=True)))
        if kind == "date":
            return Date(lower, upper, missing=missing), st.dates(lower, upper)
        if kind == "integer":
            return Numeric(lower, upper, integer=True, missing=missing), st.integers(lower, upper)
        return Numeric(lower, upper, missing=missing), st.floats(lower, upper)
    if kind == "count":
        upper = draw(st.integers(1, 10**6))
        return Count(upper, missing=missing), st.integers(0, upper)
    if kind == "boolean":
        return Boolean(missing=missing), st.booleans()
    levels = draw(st.lists(st.one_of(texts) if draw(st.booleans()) else whole, min_size=2, max_size=5, unique=True))
    make = Categorical if kind == "categorical" else Ordinal
    return make(tuple(levels), missing=missing), st.sampled_from(levels)


@st.composite
def schemas_with_tables(draw):
    size = draw(st.integers(1, 6))
    declared, table = {}, {}
    for name in draw(st.lists(texts, min_size=1, max_size=4, unique=True)):
        column, values = draw(columns())
        declared[name] = column
        gaps = st.none() | values if column.missing else values
        table[name] = draw(st.lists(gaps, min_size=size, max_size=size))
    hypothesis.assume(not any(f"{name}_observed" in declared for name in declared))
    return Schema(declared), table


def same(schema: Schema, decoded: dict, table: dict) -> None:
    for name, column in schema.columns.items():
        for found, given in zip(decoded[name].tolist(), table[name], strict=True):
            if isinstance(column, Numeric) and not column.integer and given is not None:
                assert abs(found - given) <= 1e-12 * (column.upper - column.lower)
            else:
                assert found == given


@hypothesis.given(schemas_with_tables())
@hypothesis.settings(max_examples=60)
def test_arrays_come_back_as_the_table(case):
    schema, table = case
    arrays = schema.encode(table, outside="raise")
    assert {name: leaf.dtype for name, leaf in arrays.items()} == schema.leaves
    same(schema, schema.decode(arrays), table)
    again = schema.encode(schema.decode(arrays), outside="raise")
    for name, leaf in arrays.items():
        np.testing.assert_allclose(again[name], leaf, atol=1e-12)


@hypothesis.given(schemas_with_tables())
@hypothesis.settings(max_examples=40)
def test_a_schema_comes_back_from_toml(tmp_path_factory, case):
    schema, _ = case
    path = tmp_path_factory.mktemp("schema") / "schema.toml"
    schema.save(path)
    assert Schema.load(path) == schema


@hypothesis.given(values=st.lists(st.floats(allow_nan=False), min_size=1, max_size=5))
def test_whatever_a_record_holds_its_leaf_lies_within_the_declaration(values):
    schema = Schema({"x": Numeric(-2, 3), "n": Count(4)})
    leaves = schema.encode({"x": values, "n": values})
    assert np.all(np.abs(leaves["x"]) <= 1)
    assert np.all((leaves["n"] >= 0) & (leaves["n"] <= 4))


@pytest.mark.parametrize("to", ["columns", "pandas", "polars", "arrow"])
def test_every_make_of_table_goes_round(to):
    if to != "columns":
        pytest.importorskip("pyarrow" if to == "arrow" else to)
    arrays = MIXED.encode(TABLE)
    table = MIXED.decode(arrays, to=to)
    again = MIXED.encode(table, outside="raise")
    same(MIXED, MIXED.decode(again), TABLE)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_go_round(tmp_path, suffix):
    from dpvi.table.writing import write

    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"table.{suffix}"
    write(iter([MIXED.decode_columns(MIXED.encode(TABLE))]), path)
    same(MIXED, MIXED.decode(MIXED.encode(path, outside="raise")), TABLE)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_data_frames_keep_dtypes_and_levels():
    pandas = pytest.importorskip("pandas")
    frame = MIXED.decode(MIXED.encode(TABLE), to="pandas")
    assert frame["age"].dtype == "int64"
    assert frame["visits"].dtype == "Int32"
    assert frame["ill"].dtype == "boolean"
    assert list(frame["job"].cat.categories) == list(MIXED["job"].levels)
    assert frame["school"].cat.ordered
    assert pandas.api.types.is_datetime64_dtype(frame["born"])


def test_texts_and_floats_stand_for_levels_as_files_and_frames_write_them():
    schema = Schema({"code": Categorical((1, 2, 10)), "letter": Categorical(("NA", "b"), missing=True)})
    leaves = schema.encode({"code": ["10", " 1", "2"], "letter": ["NA", "b", ""]})
    assert leaves["code"].tolist() == [2, 0, 1]
    assert leaves["letter"].tolist() == [0, 1, 0]
    assert leaves["letter_observed"].tolist() == [True, True, False]
    assert schema.encode({"code": np.array([10.0, 1.0]), "letter": ["b", "b"]})["code"].tolist() == [2, 0]


def test_a_narrow_float_stays_within_its_bounds():
    schema = Schema({"x": Numeric(0.1, 0.7, dtype="float32")})
    stored = schema.decode({"x": np.array([-1.0, 1.0])})["x"]
    assert stored.dtype == np.float32
    schema.encode({"x": stored}, outside="raise")


def test_a_design_has_indicators_for_all_but_the_reference():
    schema = Schema({"n": Count(4), "d": Date(DAY(2000, 1, 1), DAY(2000, 1, 11)), "job": Ordinal(("a", "b", "c"))})
    arrays = schema.encode({"n": [2, 4], "d": [DAY(2000, 1, 1), DAY(2000, 1, 3)], "job": ["c", "a"]})
    design = Design(schema, ("n", "d", "job"), {"job": "c"})
    assert design.names == ("n", "d", "job=a", "job=b")
    np.testing.assert_allclose(design.matrix(arrays), [[0.5, -1, 0, 0], [1, -0.6, 1, 0]])
    np.testing.assert_allclose(design.matrix(arrays, units="own"), [[2, 0, 0, 0], [4, 2, 1, 0]])


def test_importing_the_schema_loads_neither_jax_nor_pandas():
    code = "import sys, dpvi.table; print([m for m in ('jax', 'pandas', 'polars', 'pyarrow') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
