"""Clipping: the norm is at most C as real numbers, whatever the vector, the clip norm and the precision."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpvi.release.clip import clip_factor

# both sides of the switch from one to two stages, and of its squares
DIMENSIONS = (1, 2, 3, 17, 100, 1023, 1024, 1025, 2100)
CLIP_NORMS = (1e-12, 1e-9, 3e-9, 1e-3, 0.1, 1.0, 3.0, 1e8, 1e12)
ROWS = 6

compiled = jax.jit(clip_factor, static_argnums=1)


def exact_square(vector: np.ndarray) -> Fraction:
    """Σ v² without any rounding."""
    mantissas, exponents = np.frexp(np.asarray(vector, np.float64))
    lowest = int(exponents.min())
    total = sum(
        (int(mantissa * 2.0**53) << int(exponent - lowest)) ** 2
        for mantissa, exponent in zip(mantissas.tolist(), exponents.tolist(), strict=True)
    )
    return Fraction(total) * Fraction(2) ** (2 * (lowest - 53))


def clipped(vectors: np.ndarray, clip_norm: float, factor=compiled) -> tuple[np.ndarray, np.ndarray]:
    """Factors, and the rows after multiplication in their own precision."""
    factors = np.asarray(factor(jnp.asarray(vectors), clip_norm))
    assert factors.dtype == vectors.dtype
    assert factors.shape == vectors.shape[:-1]
    with np.errstate(under="ignore"):
        return factors, factors[..., None] * vectors


def rows(dimension: int, dtype: str, seed: int, magnitude: float, spread: float) -> np.ndarray:
    """Vectors with entries around 10^magnitude that differ by up to ``spread`` decades."""
    generator = np.random.default_rng(seed)
    decades = magnitude + spread * generator.uniform(-1, 0, (ROWS, dimension))
    return (generator.standard_normal((ROWS, dimension)) * 10**decades).astype(dtype)


def check_bound(vectors: np.ndarray, clip_norm: float) -> None:
    limit = Fraction(clip_norm) ** 2
    factors, products = clipped(vectors, clip_norm)
    # the edge of the documented table: squares of the vector, or of its ratio to an extreme C, that overflow
    unit = 1.0 if 1e-9 < clip_norm < 1e9 else clip_norm
    largest = np.sqrt(float(np.finfo(vectors.dtype).max))
    lost = 5e-5 if vectors.dtype == np.float32 else 1e-12
    for vector, factor, product in zip(vectors, factors, products, strict=True):
        assert 0 <= factor <= 1
        assert exact_square(product) <= limit
        norm = float(np.sqrt(np.sum(np.square(vector.astype(np.float64)))))
        if norm <= clip_norm * (1 - lost):
            assert factor == 1
        elif norm / unit < 0.99 * largest:
            assert float(exact_square(product)) >= (clip_norm * (1 - lost)) ** 2
        elif norm / unit > 1.01 * largest:
            assert factor == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_norm_is_at_most_the_clip_norm(dtype):
    @settings(max_examples=45)
    @given(
        dimension=st.sampled_from(DIMENSIONS),
        clip_norm=st.sampled_from(CLIP_NORMS),
        magnitude=st.floats(-30, 18),
        spread=st.sampled_from([0.0, 1.0, 20.0]),
        seed=st.integers(0, 2**32),
    )
    def check(dimension, clip_norm, magnitude, spread, seed):
        check_bound(rows(dimension, dtype, seed, magnitude, spread), clip_norm)

    with jax.enable_x64(dtype == "float64"):
        check()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_at_the_clip_norm(dtype):
    """Where rounding decides: norms within a few units of C, and any clip norm, not only round ones."""

    @settings(max_examples=40)
    @given(exponent=st.floats(-12, 12), distance=st.integers(-40, 40), seed=st.integers(0, 2**32))
    def check(exponent, distance, seed):
        clip_norm = 10**exponent
        vectors = np.random.default_rng(seed).standard_normal((ROWS, 100))
        scale = clip_norm * (1 + distance * float(np.finfo(dtype).eps))
        vectors *= scale / np.linalg.norm(vectors, axis=1, keepdims=True)
        factors, products = clipped(vectors.astype(dtype), clip_norm, clip_factor)
        assert all(exact_square(product) <= Fraction(clip_norm) ** 2 for product in products)
        assert np.all(factors > 1 - 1e-5)

    with jax.enable_x64(dtype == "float64"):
        check()


def plain_factor(vectors: jax.Array, clip_norm: float) -> jax.Array:
    """The named wrong answer."""
    return jnp.minimum(1.0, clip_norm / jnp.linalg.norm(vectors, axis=-1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dimension", [100, 1500])
def test_the_plain_formula_breaks_the_bound(dtype, dimension):
    with jax.enable_x64(dtype == "float64"):
        vectors = np.random.default_rng(1).standard_normal((100, dimension)).astype(dtype)
        broken = {}
        for factor in (plain_factor, compiled):
            _, products = clipped(vectors, 3.0, factor)
            broken[factor] = sum(exact_square(product) > 9 for product in products)
    assert broken[compiled] == 0
    assert broken[plain_factor] > 20


def test_the_cost_of_the_bound_at_one_hundred_dimensions():
    vectors = np.random.default_rng(2).standard_normal((50, 100)).astype(np.float32)
    _, products = clipped(vectors, 3.0)
    norms = np.sqrt([float(exact_square(product)) for product in products])
    assert np.all(norms <= 3)
    assert np.all(norms > 3 * (1 - 5e-6))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("clip_norm", [1e-12, 1.0, 1e12, INF])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_edges(dtype, clip_norm):
    largest = float(np.finfo(dtype).max)
    table = [
        ([0.0, 0.0, 0.0], 1.0),
        ([-0.0, 0.0, 0.0], 1.0),
        ([NAN, 0.0, 0.0], 0.0),
        ([1.0, INF, 0.0], 0.0),
        ([-INF, INF, NAN], 0.0),
        ([largest, 0.0, 0.0], 1.0 if clip_norm == INF else 0.0),
        ([1e-30, 0.0, -1e-30], 1.0),
        ([float(np.finfo(dtype).tiny), 0.0, 0.0], 1.0),
    ]
    with jax.enable_x64(dtype == "float64"):
        vectors = jnp.asarray(np.array([row for row, _ in table], dtype))
        for factor in (clip_factor, compiled):
            factors = np.asarray(factor(vectors, clip_norm))
            np.testing.assert_array_equal(factors, [expected for _, expected in table])
            assert factors.dtype == np.dtype(dtype)


def test_batches_and_single_vectors_agree():
    vectors = np.random.default_rng(3).standard_normal((2, 4, 30)).astype(np.float32)
    together = np.asarray(clip_factor(jnp.asarray(vectors), 2.0))
    assert together.shape == (2, 4)
    alone = np.asarray(clip_factor(jnp.asarray(vectors[1, 2]), 2.0))
    np.testing.assert_allclose(alone, together[1, 2], rtol=1e-6)
    mapped = jax.vmap(jax.vmap(lambda v: clip_factor(v, 2.0)))(jnp.asarray(vectors))
    np.testing.assert_allclose(np.asarray(mapped), together, rtol=1e-6)
