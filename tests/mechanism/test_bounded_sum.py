"""The clipped sum: equal to the naive one, bounded in every record, deaf to empty slots and broken records."""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.units import exact_norm_squared, limit_squared, same_bits, unit, values

from dpvi.mechanism.bounded_sum import Clipped, bounded_sum
from dpvi.release.clip import clip_factor

SLOTS, SIZE = 64, 7


def total(releases: jax.Array, included: jax.Array, clip_norm: float) -> jax.Array:
    return bounded_sum(releases, included, clip_norm).total


compiled = jax.jit(total, static_argnums=2)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield request.param


def releases(dtype: str, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((SLOTS, SIZE)) * 10 ** generator.uniform(-2, 2, (SLOTS, 1))).astype(dtype)


def naive(rows: np.ndarray, included: np.ndarray, clip_norm: float) -> np.ndarray:
    total = np.zeros(rows.shape[1])
    for row, used in zip(rows.astype(np.float64), included, strict=True):
        norm = np.linalg.norm(row)
        if used:
            total += row * min(1.0, clip_norm / norm) if norm > 0 else row
    return total


def allowed(rows: np.ndarray, clip_norm: float, dtype: str) -> float:
    """Slack of the clip, and a unit that every record may lose in every entry."""
    if np.isinf(clip_norm):  # nothing is clipped or cut: float64 adds up
        return SLOTS * 2.0**-50 * float(np.abs(rows).sum())
    scale = np.sum(np.minimum(np.linalg.norm(rows, axis=1), clip_norm))
    return (SIZE + 20) * float(np.finfo(dtype).eps) * scale + SLOTS * float(unit(clip_norm))


@pytest.mark.parametrize("clip_norm", [0.01, 1.0, 30.0, float("inf")])
def test_it_is_the_sum_of_the_clipped_rows(dtype, clip_norm):
    rows, included = releases(dtype), np.arange(SLOTS) % 3 != 0
    found = jax.jit(lambda r, i: bounded_sum(r, i, clip_norm))(jnp.asarray(rows), jnp.asarray(included))
    assert found.total.shape == (SIZE,)
    expected = naive(rows, included, clip_norm)
    np.testing.assert_allclose(values(found, clip_norm), expected, rtol=0, atol=allowed(rows, clip_norm, dtype))


@pytest.mark.parametrize("clip_norm", [1.0, float("inf")])
@pytest.mark.parametrize("rubbish", [np.nan, np.inf, -np.inf, 1e38])
def test_a_void_slot_contributes_nothing_whatever_it_holds(dtype, clip_norm, rubbish):
    rows, included = releases(dtype), np.arange(SLOTS) < 15
    clean, dirty = np.where(included[:, None], rows, 0), np.where(included[:, None], rows, np.asarray(rubbish, dtype))
    totals = [compiled(jnp.asarray(each), jnp.asarray(included), clip_norm) for each in (clean, dirty)]
    np.testing.assert_array_equal(np.asarray(totals[0]), np.asarray(totals[1]))


@pytest.mark.parametrize("clip_norm", [1.0, float("inf")])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_broken_record_contributes_zero_and_disturbs_nobody(dtype, clip_norm, broken):
    rows, everyone = releases(dtype), np.ones(SLOTS, bool)
    dirty = rows.copy()
    dirty[4, 2] = broken
    dirty[9, :] = broken
    without = everyone.copy()
    without[[4, 9]] = False
    total = compiled(jnp.asarray(dirty), jnp.asarray(everyone), clip_norm)
    expected = compiled(jnp.asarray(rows), jnp.asarray(without), clip_norm)
    assert np.all(np.isfinite(np.asarray(total)))
    np.testing.assert_array_equal(np.asarray(total), np.asarray(expected))
    # the named wrong answer: a weight of zero does not remove a broken row
    with np.errstate(invalid="ignore"):
        assert np.any(np.isnan(without.astype(dtype) @ dirty))


def test_every_record_broken_or_no_record_at_all(dtype):
    broken = jnp.full((SLOTS, SIZE), jnp.nan, dtype)
    np.testing.assert_array_equal(np.asarray(compiled(broken, jnp.ones(SLOTS, bool), 1.0)), 0)
    rows = jnp.asarray(releases(dtype))
    np.testing.assert_array_equal(np.asarray(compiled(rows, jnp.zeros(SLOTS, bool), 1.0)), 0)


def test_it_works_where_a_batch_of_sums_is_taken(dtype):
    rows = np.stack([releases(dtype, seed) for seed in range(3)])
    rows[1, 5, 0] = np.nan
    everyone = jnp.ones((3, SLOTS), bool)
    together = jax.vmap(lambda r, i: total(r, i, 1.0))(jnp.asarray(rows), everyone)
    alone = np.stack([np.asarray(compiled(jnp.asarray(each), everyone[0], 1.0)) for each in rows])
    np.testing.assert_allclose(np.asarray(together) * float(unit(1.0)), alone * float(unit(1.0)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_one_record_moves_the_sum_by_at_most_the_clip_norm(precision):
    """Sums are whole numbers, so that it can be said without a tolerance."""

    @settings(max_examples=60)
    @given(
        seed=st.integers(0, 2**32),
        slot=st.integers(0, SLOTS - 1),
        decade=st.floats(-6, 15),
        entry=st.sampled_from([None, np.nan, np.inf, -np.inf, 3e38]),
        clip_norm=st.sampled_from([1e-3, 1.0, 50.0]),
    )
    def check(seed, slot, decade, entry, clip_norm):
        rows = releases(precision, seed)
        rows[slot] = (np.random.default_rng(seed).standard_normal(SIZE) * 10**decade).astype(precision)
        if entry is not None:
            rows[slot, 0] = entry
        with_it = np.ones(SLOTS, bool)
        without = with_it.copy()
        without[slot] = False
        sums = [np.asarray(compiled(jnp.asarray(rows), jnp.asarray(who), clip_norm)) for who in (with_it, without)]
        assert exact_norm_squared(sums[0] - sums[1]) <= limit_squared(clip_norm)

    with jax.enable_x64(precision == "float64"):
        check()


COUNT = 50_048  # whole tiles of 64


def change(adder, rows: np.ndarray) -> np.ndarray:
    """By how much a sum moves when the first record leaves and all others move up a slot."""
    count, shorter = len(rows), np.concatenate([rows[1:], rows[-1:]])
    sums = adder(jnp.asarray(rows), jnp.ones(count, bool)), adder(jnp.asarray(shorter), jnp.arange(count) < count - 1)
    return np.asarray(sums[0]) - np.asarray(sums[1])


def clipped_rows(seed: int) -> np.ndarray:
    """All of them are clipped to norm 1, and lie in one orthant, so that partial sums grow fast."""
    return np.abs(np.random.default_rng(seed).normal(size=(COUNT, 2))).astype(np.float32) + 2


at_once = jax.jit(lambda rows, included: total(rows, included, 1.0))


def in_parts(rows: jax.Array, included: jax.Array) -> jax.Array:
    one = jax.jit(lambda rows, included: bounded_sum(rows, included, 1.0))
    cuts = [(start, min(start + 2560, len(rows))) for start in range(0, len(rows), 2560)]
    return reduce(Clipped.plus, [one(rows[first:last], included[first:last]) for first, last in cuts]).total


def under_vmap(rows: jax.Array, included: jax.Array) -> jax.Array:
    return jax.vmap(at_once)(rows[None], included[None])[0]


@pytest.mark.parametrize("adder", [at_once, in_parts, under_vmap], ids=["at once", "in parts", "under vmap"])
def test_one_record_of_many_moves_the_sum_by_what_it_adds_alone(adder):
    """A record that leaves moves all later ones up a slot; nothing of what they add may change."""
    rows = clipped_rows(0)
    moved = change(adder, rows)
    assert np.linalg.norm(moved * float(unit(1.0))) > 1 - 1e-5
    assert exact_norm_squared(moved) <= limit_squared(1.0)
    alone = np.asarray(at_once(jnp.asarray(rows[:64]), jnp.arange(64) == 0))
    np.testing.assert_array_equal(moved, alone)
    np.testing.assert_array_equal(adder(jnp.asarray(rows), jnp.ones(COUNT, bool)), at_once(rows, np.ones(COUNT, bool)))


def test_adding_large_batches_plainly_would_not_do():
    """The named wrong answer: a float32 sum."""

    @jax.jit
    def plain(rows: jax.Array, included: jax.Array) -> jax.Array:
        clipped = jnp.where(included[:, None], clip_factor(rows, 1.0)[:, None] * rows, 0)
        return jax.lax.scan(lambda total, row: (total + row, None), jnp.zeros(2), clipped)[0]

    # rounding is random and may be small by chance, hardly in four batches
    changes = [np.linalg.norm(change(plain, clipped_rows(seed)).astype(np.float64)) for seed in range(4)]
    assert max(abs(moved - 1) for moved in changes) > 2e-4


def test_sums_of_parts_are_the_sum_of_all(dtype):
    rows, everyone = releases(dtype), jnp.ones(SLOTS, bool)
    one = jax.jit(lambda included: bounded_sum(jnp.asarray(rows), included, 1.0))
    singles = [one(jnp.arange(SLOTS) == index) for index in range(SLOTS)]
    same_bits(reduce(Clipped.plus, singles), one(everyone))
    same_bits(reduce(Clipped.plus, singles[::-1]), one(everyone))


def test_double_precision_stays_inside_whatever_surrounds_the_sum(dtype):
    """Loops, batches and programs of float32 have whole numbers in them, and see nothing of their 64 digits."""
    rows, everyone = np.stack([releases(dtype, seed) for seed in range(3)]), jnp.ones(SLOTS, bool)

    @jax.jit
    def many_rows(rows: jax.Array) -> Clipped:
        return bounded_sum(rows, everyone, 1.0)

    def added(sums: Clipped, rows: jax.Array) -> tuple[Clipped, Clipped]:
        return sums.plus(many_rows(rows)), many_rows(rows)

    nothing = bounded_sum(jnp.asarray(rows[0]), jnp.zeros(SLOTS, bool), 1.0)
    final, each = jax.jit(lambda rows: jax.lax.scan(added, nothing, rows))(jnp.asarray(rows))
    expected = np.stack([naive(part, np.ones(SLOTS, bool), 1.0) for part in rows])
    for found in (each, jax.vmap(many_rows)(jnp.asarray(rows)), jax.jit(jax.vmap(many_rows))(jnp.asarray(rows))):
        np.testing.assert_allclose(values(found, 1.0), expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(final.total, np.asarray(each.total).sum(axis=0))
    assert (jnp.zeros(2) + 1).dtype == np.dtype(dtype)
