"""Products that give a row the same bits whatever is beside it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpvi.mechanism.exact_product import exact_product

COLUMNS = 37


def rows_of(num_rows: int, seed: int = 0) -> np.ndarray:
    """Rows of very different sizes, whose terms cancel."""
    random = np.random.default_rng(seed)
    return random.normal(size=(num_rows, COLUMNS)) * 10.0 ** random.uniform(-8, 8, (num_rows, 1))


def matrix_of(num_rows: int) -> np.ndarray:
    random = np.random.default_rng(1)
    return random.normal(size=(num_rows, COLUMNS)) * 10.0 ** random.uniform(-3, 3, (num_rows, 1))


def product(rows, matrix) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(exact_product)(jnp.asarray(rows), jnp.asarray(matrix)))


def test_it_is_the_product_up_to_the_error_it_states():
    rows, matrix = rows_of(50), matrix_of(5)
    largest = np.abs(rows).max(axis=1)[:, None] * np.abs(matrix).max(axis=1)
    assert np.all(np.abs(product(rows, matrix) - rows @ matrix.T) <= 2.0 ** (2 - 23) * COLUMNS * largest)


@settings(max_examples=20)
@given(st.integers(1, 70), st.integers(0, 69), st.integers(0, 1000))
def test_a_row_has_the_same_bits_alone_and_anywhere(num_rows, place, seed):
    rows, matrix = rows_of(num_rows, seed), matrix_of(4)
    place %= num_rows
    alone, among = product(rows[place : place + 1], matrix)[0], product(rows, matrix)
    assert np.array_equal(alone, among[place])
    assert np.array_equal(np.roll(among, 3, axis=0), product(np.roll(rows, 3, axis=0), matrix))


def test_the_order_of_columns_does_not_matter_and_would_to_a_plain_product():
    rows, matrix, order = rows_of(200), matrix_of(4), np.random.default_rng(2).permutation(COLUMNS)
    assert np.array_equal(product(rows, matrix), product(rows[:, order], matrix[:, order]))
    with jax.enable_x64(True):
        plain = [
            np.asarray(jnp.asarray(a) @ jnp.asarray(b).T)
            for a, b in ((rows, matrix), (rows[:, order], matrix[:, order]))
        ]
    assert not np.array_equal(*plain)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf, 1e300])
def test_a_broken_row_is_nan_and_touches_no_other(broken):
    rows, matrix = rows_of(9), matrix_of(3)
    expected = product(rows, matrix)
    rows[4, 2] = broken
    found = product(rows, matrix)
    assert np.all(np.isnan(found[4]))
    assert np.array_equal(np.delete(found, 4, axis=0), np.delete(expected, 4, axis=0))


def test_zeros_and_tiny_numbers_are_zero():
    rows = np.zeros((3, COLUMNS))
    rows[1], rows[2] = 1e-310, 5e-324
    assert np.all(np.abs(product(rows, matrix_of(3))) < 1e-100)
    assert not np.any(product(rows, matrix_of(3))[0])
