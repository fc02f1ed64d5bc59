"""The Gaussian mechanism to the last bit: whole sums, noise that meets them, and a public grid."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.small_models import location_model, private_plan
from support.statistics import assert_frequencies
from support.units import FORMED_BITS, GHOST_BITS, exact_norm_squared, grid, limit_squared, same_bits, unit

from dpvi.declared.clipping import PerLayer
from dpvi.families import MeanField
from dpvi.gradients import Aligned
from dpvi.mechanism.bounded_sum import bounded_sum
from dpvi.mechanism.gaussian import (
    LARGEST_MULTIPLIER,
    check_noise_multiplier,
    exact_sum,
    is_unbounded,
    noisy,
    noisy_counts,
    per_unit,
    power_of_two_above,
)
from dpvi.mechanism.layers import Layers
from dpvi.mechanism.rng import root_key, step_normals, streams
from dpvi.records.sampling import poisson_sampler
from dpvi.run.program.step import Algorithm, noise_of

SLOTS, SIZE = 128, 5


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield request.param


def whole(numbers) -> jax.Array:
    with jax.enable_x64(True):
        return jnp.asarray(np.asarray(numbers, np.int64))


def doubles(numbers) -> jax.Array:
    with jax.enable_x64(True):
        return jnp.asarray(np.asarray(numbers, np.float64))


def releases(dtype: str, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((SLOTS, SIZE)) * 10 ** generator.uniform(-3, 3, (SLOTS, 1))).astype(dtype)


def by_integers(total: int, normal: float, multiplier: float, clip_norm: float, bits: int) -> float:
    """What :func:`noisy` says it does, with Python's integers."""
    scale = multiplier * (clip_norm / float(unit(clip_norm, bits)))
    shift = 0
    while scale and 2 ** (shift + 1) <= Fraction(scale) / 1024:
        shift += 1
    moved = total + math.floor(scale * normal)
    snapped = (moved + (2**shift >> 1)) // 2**shift * 2**shift
    return snapped * float(unit(clip_norm, bits))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(value=st.floats(2.0**-66, 2.0**66, width=32))
@example(value=1.0)
@example(value=np.nextafter(np.float32(1), np.float32(0)).item())
def test_the_power_of_two_above(dtype, value):
    with jax.enable_x64(dtype == "float64"):
        above = float(power_of_two_above(value))
        assert above / 2 <= value < above
        assert math.frexp(above)[0] == 0.5
        traced = jax.jit(power_of_two_above)(jnp.asarray(value, dtype))
        assert traced.dtype == np.dtype(dtype)
        assert float(traced) == above
        expected = 2.0**FORMED_BITS / above
        assert float(per_unit(value, FORMED_BITS, dtype)) == expected
        assert float(per_unit(jnp.asarray(value, dtype), FORMED_BITS, dtype)) == expected


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), bits=st.sampled_from([FORMED_BITS, GHOST_BITS]))
def test_whole_numbers_are_added_exactly(seed, bits):
    """Also the largest ones that there may be; float32, the wrong answer, would lose digits at once."""
    generator = np.random.default_rng(seed)
    numbers = generator.integers(-(2**bits), 2**bits, (SLOTS, SIZE)).astype(np.float32)
    numbers[:3] = (2.0**bits, -(2.0**bits), 2.5, -2.5, 0.999)  # what is no whole number is cut towards zero
    present = generator.random(SLOTS) < 0.7
    expected = [sum(int(x) for x in column) for column in numbers[present].T]
    numbers[~present] = np.nan
    found = exact_sum(jnp.asarray(numbers), jnp.asarray(present), bits)
    assert found.dtype == np.int64
    assert np.asarray(found).tolist() == expected
    plain = jnp.sum(jnp.where(jnp.asarray(present)[:, None], jnp.asarray(numbers), 0), axis=0)
    assert [int(x) for x in np.asarray(plain)] != expected


@pytest.mark.parametrize("clip_norm", [0.3, 1.0, 50.0])
@pytest.mark.parametrize("layered", [False, True], ids=["flat", "layers"])
def test_neither_order_nor_parts_matter(dtype, clip_norm, layered):
    """To the last bit: a record adds the same whole numbers wherever it stands and whoever stands beside it."""
    rows, included = releases(dtype), np.arange(SLOTS) % 3 != 0
    rows[7, 1] = np.nan
    layers = Layers((2, 3), (clip_norm, 2 * clip_norm)) if layered else None
    compiled = jax.jit(lambda r, i: bounded_sum(r, i, clip_norm, layers))

    def summed(rows, included):
        return compiled(jnp.asarray(rows), jnp.asarray(included))

    together = summed(rows, included)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(SLOTS)
        same_bits(summed(rows[order], included[order]), together)
        cut = np.random.default_rng(seed).random(SLOTS) < 0.5
        same_bits(summed(rows, included & cut).plus(summed(rows, included & ~cut)), together)
    half = SLOTS // 2
    halves = [summed(rows[part], included[part]) for part in (slice(0, half), slice(half, SLOTS))]
    same_bits(halves[1].plus(halves[0]), together)
    moved_up = np.concatenate([rows[included], rows[~included]])
    same_bits(summed(moved_up, np.arange(SLOTS) < included.sum()), together)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_no_whole_vector_is_longer_than_the_clip_norm(precision):
    """Its norm is an integer's root, compared without rounding; so is the change when a record leaves a batch."""

    @settings(max_examples=60)
    @given(
        seed=st.integers(0, 2**32),
        decade=st.floats(-12, 18),
        clip_norm=st.sampled_from([1e-12, 1e-3, 0.7, 1.0, 2.0, 3.999, 50.0, 1e12]),
        traced=st.booleans(),
    )
    def check(seed, decade, clip_norm, traced):
        generator = np.random.default_rng(seed)
        row = generator.standard_normal(SIZE) * 10**decade * np.where(generator.random(SIZE) < 0.3, 0, 1)
        rows = np.zeros((64, SIZE), precision)
        rows[3] = row
        clip_norm = float(np.asarray(clip_norm, precision)) if traced else clip_norm
        bound = jnp.asarray(clip_norm, precision) if traced else clip_norm
        total = bounded_sum(jnp.asarray(rows), jnp.arange(64) == 3, bound).total
        assert exact_norm_squared(total) <= limit_squared(clip_norm)
        kept = np.asarray(total) * float(unit(clip_norm))
        given_norm = np.linalg.norm(rows[3].astype(np.float64))
        if given_norm / clip_norm > 1e18:  # squares overflow in single precision
            return
        # and hardly shorter: by the slack of the clip, and by a unit in every entry
        slack = 60 * float(np.finfo(precision).eps)
        shortest = min(given_norm, clip_norm) * (1 - slack) - float(unit(clip_norm)) * math.sqrt(SIZE)
        assert np.linalg.norm(kept) >= shortest

    with jax.enable_x64(precision == "float64"):
        check()


def test_rounding_to_nearest_would_lengthen_vectors(x64):
    """The named wrong answer: entries that are rounded, not cut, leave the ball for many a clipped vector."""
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((64, SIZE)) * 5
    longer = 0
    for row in rows:
        shortened = row / np.linalg.norm(row) * (1 - 2.0**-50)
        longer += exact_norm_squared(np.round(shortened / float(unit(1.0)))) > limit_squared(1.0)
    assert longer > 10
    for index in range(64):
        total = bounded_sum(jnp.asarray(rows), jnp.arange(64) == index, 1.0).total
        assert exact_norm_squared(total) <= limit_squared(1.0)


MULTIPLIERS = st.one_of(st.just(0.0), st.floats(2.0**-40, 2.0**20), st.sampled_from([2.0**-21, 1.0, 2.0**20]))


@settings(max_examples=200)
@given(
    total=st.integers(-(2**52), 2**52),
    # a normal that is not zero is made of 64 bits; XLA takes products below 1e-308 for zero
    normal=st.floats(-9.2, 9.2).filter(lambda normal: normal == 0 or abs(normal) > 1e-30),
    multiplier=MULTIPLIERS,
    clip_norm=st.floats(1e-20, 1e20),
    bits=st.sampled_from([1, FORMED_BITS, GHOST_BITS]),
)
@example(total=-1, normal=-1e-9, multiplier=1.0, clip_norm=1.0, bits=FORMED_BITS)
@example(total=2**52, normal=9.2, multiplier=2.0**20, clip_norm=1.999999, bits=GHOST_BITS)
def test_noise_is_added_in_whole_numbers(total, normal, multiplier, clip_norm, bits):
    arguments = whole([total]), doubles([normal]), multiplier, clip_norm, bits
    found = noisy(*arguments, jnp.float64)
    expected = by_integers(total, normal, multiplier, clip_norm, bits)
    assert found.dtype == np.float64
    assert float(found[0]) == expected
    short = noisy(*arguments, jnp.float32)
    assert short.dtype == np.float32
    with np.errstate(over="ignore"):
        assert short[0] == np.float32(expected)


@pytest.mark.parametrize("bits", [FORMED_BITS, GHOST_BITS])
def test_every_coordinate_has_the_norm_of_its_layer(dtype, bits):
    generator = np.random.default_rng(2)
    norms = np.array([0.01, 0.5, 3.0, 3.0, 700.0])
    totals = generator.integers(-(2**40), 2**40, 5)
    normals = generator.standard_normal(5)
    compiled = jax.jit(lambda t, z, multiplier: noisy(t, z, multiplier, norms, bits, dtype))
    found = compiled(whole(totals), doubles(normals), doubles(1.7))
    expected = [by_integers(int(t), z, 1.7, c, bits) for t, z, c in zip(totals, normals, norms, strict=True)]
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected, dtype))


@given(clip_norm=st.floats(2.0**-66, 2.0**66, width=32), multiplier=st.floats(1e-3, 1e6), normal=st.floats(-9, 9))
def test_a_clip_norm_may_be_an_argument_of_the_program(clip_norm, multiplier, normal):
    """One that adapts; and so may the noise, which the program need not know."""
    arguments = whole([12345, -(2**35)]), doubles([normal, -normal])
    static = noisy(*arguments, multiplier, clip_norm, FORMED_BITS, jnp.float64)
    compiled = jax.jit(lambda t, z, s, c: noisy(t, z, s, c, FORMED_BITS, jnp.float64))
    traced = compiled(*arguments, doubles(multiplier), jnp.asarray(clip_norm, jnp.float32))
    np.testing.assert_array_equal(np.asarray(traced), np.asarray(static))


def normals(count: int, seed: int = 9) -> np.ndarray:
    with jax.enable_x64(True):
        drawn = step_normals(streams(root_key(seed)).noise, jnp.arange(-(-count // 1000)), 1000)
        return np.asarray(drawn).reshape(-1)[:count]


@pytest.mark.parametrize("multiplier", [0.01, 0.8, 1.0, 37.0])
@pytest.mark.parametrize("clip_norm", [0.3, 1.0, 5.0])
def test_everything_released_lies_on_the_grid(dtype, multiplier, clip_norm):
    spacing = grid(multiplier * clip_norm, clip_norm)
    assert multiplier * clip_norm / 2048 < spacing <= multiplier * clip_norm / 1024
    totals = np.random.default_rng(1).integers(-(2**33), 2**33, 4000)
    released = np.asarray(noisy(whole(totals), doubles(normals(4000)), multiplier, clip_norm, FORMED_BITS, dtype))
    assert released.dtype == np.dtype(dtype)
    on_it = released.astype(np.float64) / spacing
    np.testing.assert_array_equal(on_it, np.round(on_it))  # in single precision, too: casting loses no digit of these
    assert np.any(on_it % 2 == 1)  # and the grid is no coarser
    exact = totals * float(unit(clip_norm)) + multiplier * clip_norm * normals(4000)
    assert np.max(np.abs(released - exact)) <= spacing * (0.5 + 2.0**-9) + float(unit(clip_norm))


def test_neighbouring_sums_have_the_same_values(dtype):
    """What a sum was cannot be told from which values are possible: sums that differ by a unit share a grid."""
    drawn = doubles(normals(50_000))
    found = [
        set(np.asarray(noisy(whole(np.full(50_000, total)), drawn, 1.0, 1.0, FORMED_BITS, dtype)).tolist())
        for total in (0, 1, 2**29 + 1)
    ]
    assert len(found[0] & found[1]) > 0.99 * len(found[0])
    assert len(found[0] & found[2]) > 0.5 * len(found[0])

    def plain(total):
        return set((np.asarray(drawn, np.float32) + np.float32(total * 2.0**-30)).tolist())

    # the wrong answer: noise in single precision, added to the sum in single precision
    assert len(plain(0) & plain(2**29 + 1)) < 0.5 * len(plain(0))


CELLS = 40
EDGES = scipy.special.ndtri(np.arange(1, CELLS) / CELLS)


def cell_counts(released: np.ndarray, standard_deviation: float, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """How many values lie in each of forty cells of whole grid points, and the probabilities of these."""
    ends = np.floor(EDGES * standard_deviation / spacing) + 0.5  # between two grid points
    counts = np.histogram(released / spacing, np.concatenate([[-np.inf], ends, [np.inf]]))[0]
    below = scipy.special.ndtr(np.concatenate([[-np.inf], ends, [np.inf]]) * spacing / standard_deviation)
    return counts, np.diff(below)


@pytest.mark.parametrize(("multiplier", "clip_norm"), [(1.0, 1.0), (0.7, 3.0)])
def test_snapped_noise_has_the_right_law(dtype, multiplier, clip_norm):
    count, scale = 200_000, multiplier * clip_norm
    spacing, drawn = grid(scale, clip_norm), doubles(normals(200_000))

    def released(factor=1.0):
        zeros = whole(np.zeros(count))
        return np.asarray(noisy(zeros, drawn, factor * multiplier, clip_norm, FORMED_BITS, dtype), np.float64)

    assert_frequencies(*cell_counts(released(), scale, spacing))
    for wrong in (0.94, 1.06):
        with pytest.raises(AssertionError):
            assert_frequencies(*cell_counts(released(wrong), scale, spacing))


def test_snapping_is_not_biased():
    """Over normals that are spread evenly; cutting to the grid, the wrong answer, is off by half of its spacing."""
    even = scipy.special.ndtri((np.arange(100_000) + 0.5) / 100_000)
    released = np.asarray(noisy(whole(np.full(100_000, 77)), doubles(even), 1.0, 1.0, FORMED_BITS, jnp.float64))
    spacing = grid(1.0, 1.0)
    assert abs(np.mean(released) - 77 * float(unit(1.0))) < 0.02 * spacing
    assert abs(np.mean(np.floor((even + 77 * float(unit(1.0))) / spacing) * spacing)) > 0.4 * spacing


def test_without_noise_nothing_is_snapped():
    totals = np.array([0, 1, -1, 2**40 + 1])
    found = noisy(whole(totals), doubles(normals(4)), 0.0, 3.0, FORMED_BITS, jnp.float64)
    np.testing.assert_array_equal(np.asarray(found), totals * float(unit(3.0)))


def test_where_nothing_is_clipped_there_is_no_unit(dtype):
    assert is_unbounded(math.inf)
    assert is_unbounded(np.array([1.0, math.inf]))
    assert not is_unbounded(1.0)
    assert not is_unbounded(jnp.asarray(1.0))
    found = noisy(doubles([0.1, -5.0]), doubles([3.0, 4.0]), 0.0, math.inf, FORMED_BITS, dtype)
    np.testing.assert_array_equal(np.asarray(found), np.asarray([0.1, -5.0], dtype))


@pytest.mark.parametrize("noise_scale", [0.0, 0.3, 3.0, 1023.0, 5000.0])
def test_noisy_counts_are_whole_numbers(noise_scale):
    counts, drawn = np.arange(2000) % 50, normals(2000)
    found = noisy_counts(counts, drawn, noise_scale)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.round(found))
    spacing = max(1.0, 2.0 ** math.floor(math.log2(noise_scale) - 10)) if noise_scale else 1.0
    assert np.max(np.abs(found - (counts + noise_scale * drawn))) <= 0.5 * spacing + 0.5
    if 0.3 <= noise_scale <= 2048:  # to the nearest whole number, not the one below
        np.testing.assert_array_equal(found, np.floor(counts + noise_scale * drawn + 0.5))


def algorithm_of(plan) -> Algorithm:
    return Algorithm(location_model(), MeanField(), Aligned(), optax.sgd(0.1), plan, poisson_sampler(10, 0.5))


def test_noise_that_does_not_fit_is_refused():
    check_noise_multiplier(LARGEST_MULTIPLIER)
    with pytest.raises(ValueError, match=r"noise multiplier is 2\.097e\+06; sums are kept in 64-bit whole numbers"):
        check_noise_multiplier(2 * LARGEST_MULTIPLIER)
    assert float(noise_of(algorithm_of(private_plan(1, noise_multiplier=LARGEST_MULTIPLIER))).of_sum) == 2**20
    with pytest.raises(ValueError, match="Plan with a larger epsilon"):
        noise_of(algorithm_of(private_plan(1, noise_multiplier=1.01 * LARGEST_MULTIPLIER)))
    layers = PerLayer({"first": 1.0, "*": 1.0})
    layered = private_plan(1, noise_multiplier=LARGEST_MULTIPLIER, clip_norm=layers.clip_norm)
    with pytest.raises(ValueError, match="up to 1048576"):  # every layer has √2 of it
        noise_of(algorithm_of(replace(layered, clipping=layers)))


def test_the_largest_noise_fits_beside_the_largest_sum():
    far = -scipy.special.ndtri(2.0**-65)
    sums = [2**38 * 2**22, -(2**38) * 2**22]
    largest = np.nextafter(2.0, 1.0)  # as many units as a norm can have
    found = noisy(whole(sums), doubles([far, -far]), LARGEST_MULTIPLIER, largest, GHOST_BITS, jnp.float64)
    pairs = zip(sums, (far, -far), strict=True)
    expected = [by_integers(total, z, LARGEST_MULTIPLIER, largest, GHOST_BITS) for total, z in pairs]
    assert np.asarray(found).tolist() == expected
    assert expected[0] > 0 > expected[1]
