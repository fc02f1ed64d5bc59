"""Records: what is accepted, what is refused, and that no message gives a record away."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpvi.records.arrays import (
    as_host_records,
    as_records,
    structure_from_dict,
    structure_of,
    structure_to_dict,
    with_dtypes,
)

N = 4217
X = np.zeros((N, 2))
Y = np.zeros(N, dtype=np.int64)


@pytest.mark.parametrize(
    "data",
    [X, (X, Y), [X, Y], {"x": X, "y": Y}, ({"x": X, "more": [Y, (X,)]}, Y), (X, None), {"x": X, "none": None}],
)
def test_pytrees_keep_their_shape(data):
    records, num_records = as_records(data)
    assert num_records == N
    assert jax.tree.structure(records) == jax.tree.structure(data)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(records))
    structure = structure_of(data)
    assert structure == jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), records)
    assert structure == structure_of(records)
    assert structure_from_dict(json.loads(json.dumps(structure_to_dict(structure)))) == structure


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [
        ("float64", "float32"),
        ("float32", "float32"),
        ("float16", "float32"),
        ("int64", "int32"),
        ("int8", "int32"),
        ("uint8", "int32"),
        ("bool", "bool"),
    ],
)
def test_dtypes(given_dtype, expected):
    records, _ = as_records(np.zeros(3, dtype=given_dtype))
    assert records.dtype.name == expected


def test_doubles_stay_doubles_under_x64():
    with jax.enable_x64(True):
        records, _ = as_records((X, Y))
        assert [leaf.dtype.name for leaf in records] == ["float64", "int32"]


LARGEST = 2**31 - 1
UNFIT = {
    "int64": np.array([0, 3_000_000_000]),
    "negative int64": np.array([-(2**31) - 1, 0]),
    "uint32": np.array([0, 3_000_000_000], np.uint32),
    "uint64": np.array([2**63 + 5], np.uint64),
}


@pytest.mark.parametrize("array", UNFIT.values(), ids=UNFIT)
def test_whole_numbers_that_do_not_fit_are_refused(array):
    one = {"y": jax.ShapeDtypeStruct((), jnp.dtype("int32"))}
    for function in (as_records, as_host_records, lambda data: with_dtypes(data, one)):
        with pytest.raises(ValueError, match=r"data\['y'\] holds whole numbers that do not fit into 32 bits") as caught:
            function({"y": array})
        assert not any(str(number) in str(caught.value) for number in (array.max(), array.min()) if number)


def test_so_are_those_of_jax_arrays():
    with pytest.raises(ValueError, match="do not fit into 32 bits"):
        as_records(jnp.asarray(UNFIT["uint32"]))
    with jax.enable_x64(True), pytest.raises(ValueError, match="do not fit into 32 bits"):
        as_records(jnp.asarray(UNFIT["int64"]))


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32", "uint64", "float64"])
def test_the_largest_numbers_fit(dtype):
    smallest = 0 if dtype.startswith("u") else -LARGEST - 1
    data = np.array([smallest, LARGEST], dtype)
    for function in (as_records, as_host_records):
        records = np.asarray(function(data)[0])
        np.testing.assert_array_equal(records, data.astype(records.dtype))
        assert function(data.reshape(2, 1)[:, :0])[0].shape == (2, 0)


def test_a_float_that_is_too_large_is_not_finite_and_no_warning_tells():
    for function in (as_records, as_host_records):
        np.testing.assert_array_equal(np.asarray(function(np.array([1e300, 1.0]))[0]), [np.inf, 1.0])


def test_jax_arrays_pass():
    records, num_records = as_records(jnp.arange(3))
    assert num_records == 3
    assert records.dtype == jnp.int32


@pytest.mark.parametrize(
    ("data", "error", "sentence"),
    [
        ((), ValueError, "at least one array"),
        (None, ValueError, "at least one array"),
        (np.zeros((0, 2)), ValueError, "at least one record"),
        ((X, Y[:-1]), ValueError, r"same number of rows.*data\[0\], data\[1\]"),
        ({"x": X, "k": 3.0}, ValueError, r"data\['k'\] must be an array"),
        ({"x": X, "k": np.float64(3.0)}, ValueError, r"data\['k'\] must be an array"),
        ({"x": [4217.0, 4217.0]}, ValueError, r"data\['x'\]\[0\] must be an array"),
        ({"x": np.array(["secret"] * N)}, TypeError, r"data\['x'\] must hold numbers"),
        ({"x": np.array([None] * N)}, TypeError, "numbers or booleans, got dtype object"),
        (np.array(["2020-01-01"] * N, dtype="datetime64[D]"), TypeError, "data must hold numbers"),
        (np.zeros(N, dtype=complex), TypeError, "complex"),
    ],
)
def test_bad_records_are_refused(data, error, sentence):
    for function in (as_records, structure_of):
        with pytest.raises(error, match=sentence) as caught:
            function(data)
        assert str(N) not in str(caught.value)
        assert "secret" not in str(caught.value)


def test_columns_of_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0, 2.0], "y": [0, 1], "s": ["a", "b"]})
    data = {"x": frame["x"], "xy": frame[["x", "y"]], "y": frame["y"]}
    records, num_records = as_records(data)
    assert num_records == 2
    assert records["xy"].shape == (2, 2)
    assert structure_of(records) == structure_of(data)
    with pytest.raises(TypeError, match="numbers or booleans"):
        as_records({"s": frame["s"]})


def test_sparse_matrices_are_refused():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="make it dense first"):
        as_records({"x": sparse.csr_array(np.eye(3))})


def test_custom_containers_cannot_be_stored():
    with pytest.raises(TypeError, match="got frozenset"):
        structure_to_dict(frozenset())
    with pytest.raises(ValueError, match="got 'set'"):
        structure_from_dict({"kind": "set"})


leaves = st.builds(
    lambda shape, dtype: jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype)),
    st.lists(st.integers(1, 4), max_size=3),
    st.sampled_from(["float32", "int32", "bool"]),
)
trees = st.recursive(
    leaves | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(trees)
def test_any_structure_survives_json(structure):
    rebuilt = structure_from_dict(json.loads(json.dumps(structure_to_dict(structure))))
    assert rebuilt == structure
    assert jax.tree.structure(rebuilt) == jax.tree.structure(structure)
