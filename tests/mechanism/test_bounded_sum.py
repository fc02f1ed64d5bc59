"""The clipped sum: equal to the naive one, bounded in every record, deaf to empty slots and broken records."""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpvi.core.clip import clip_factor, clip_ratio
from dpvi.mechanism.bounded_sum import TwoFold, bounded_sum, bounded_sum_and_count
from dpvi.mechanism.quantile_clipping import unclipped

SLOTS, SIZE = 23, 7


def total(releases: jax.Array, included: jax.Array, clip_norm: float) -> jax.Array:
    return bounded_sum(releases, included, clip_norm).value


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


def relative(dtype: str) -> float:
    """Slack of the clip and rounding of a sum of SLOTS terms."""
    return (SLOTS + SIZE + 16) * float(np.finfo(dtype).eps)


@pytest.mark.parametrize("clip_norm", [0.01, 1.0, 30.0, float("inf")])
def test_it_is_the_sum_of_the_clipped_rows(dtype, clip_norm):
    rows, included = releases(dtype), np.arange(SLOTS) % 3 != 0
    total = compiled(jnp.asarray(rows), jnp.asarray(included), clip_norm)
    assert total.dtype == np.dtype(dtype)
    assert total.shape == (SIZE,)
    scale = np.sum(np.minimum(np.linalg.norm(rows, axis=1), clip_norm))
    np.testing.assert_allclose(
        np.asarray(total), naive(rows, included, clip_norm), rtol=0, atol=relative(dtype) * scale
    )


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
    np.testing.assert_allclose(np.asarray(together), alone, rtol=0, atol=relative(dtype) * SLOTS)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_one_record_moves_the_sum_by_at_most_the_clip_norm(precision):
    eps = float(np.finfo(precision).eps)

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
        moved = np.linalg.norm(sums[0].astype(np.float64) - sums[1].astype(np.float64))
        # each sum rounds SLOTS partial sums, none longer than SLOTS·C
        assert moved <= clip_norm * (1 + 2 * SLOTS**2 * eps)

    with jax.enable_x64(precision == "float64"):
        check()


def change(adder, rows: np.ndarray) -> float:
    """By how much a sum moves when the first record leaves and all others move up a slot."""
    count, shorter = len(rows), np.concatenate([rows[1:], rows[-1:]])
    sums = adder(jnp.asarray(rows), jnp.ones(count, bool)), adder(jnp.asarray(shorter), jnp.arange(count) < count - 1)
    before, after = (sum(np.float64(part) for part in total) for total in sums)
    return float(np.linalg.norm(before - after))


def clipped_rows(seed: int) -> np.ndarray:
    """All of them are clipped to norm 1, and lie in one orthant, so that partial sums grow fast."""
    return np.abs(np.random.default_rng(seed).normal(size=(50_000, 2))).astype(np.float32) + 2


def in_parts(rows: jax.Array, included: jax.Array) -> TwoFold:
    parts = [
        bounded_sum(rows[start : start + 250], included[start : start + 250], 1.0) for start in range(0, len(rows), 250)
    ]
    return reduce(TwoFold.plus, parts)


def plain(rows: jax.Array, included: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The named wrong answer: a float32 sum."""
    clipped = jnp.where(included[:, None], clip_factor(rows, 1.0)[:, None] * rows, 0)
    total = jax.lax.scan(lambda total, row: (total + row, None), jnp.zeros(2), clipped)[0]
    return total, jnp.zeros_like(total)


def in_plain_parts(rows: jax.Array, included: jax.Array) -> TwoFold:
    """Another wrong answer: parts as float32 sums, added in twofold precision."""
    parts = [
        TwoFold(*plain(rows[start : start + 250], included[start : start + 250])) for start in range(0, len(rows), 250)
    ]
    return reduce(TwoFold.plus, parts)


def under_vmap(rows: jax.Array, included: jax.Array) -> TwoFold:
    compiled = jax.jit(lambda r, i: bounded_sum(r, i, 1.0))
    return TwoFold(*(part[0] for part in jax.vmap(compiled)(rows[None], included[None])))


@pytest.mark.parametrize(
    "adder",
    [lambda r, i: bounded_sum(r, i, 1.0), in_parts, under_vmap],
    ids=["at once", "in parts", "under vmap"],
)
def test_large_batches_are_added_so_precisely_that_no_record_counts_for_more(adder):
    """A record that leaves moves all later ones up a slot; a plain float32 sum then rounds another way."""
    assert 1 - 1e-5 < change(adder, clipped_rows(0)) < 1 + 1e-6


def test_adding_large_batches_plainly_would_not_do():
    # rounding is random and may be small by chance, hardly in four batches
    batches = [clipped_rows(seed) for seed in range(4)]
    assert max(abs(change(plain, rows) - 1) for rows in batches) > 2e-4
    assert max(abs(change(in_plain_parts, rows) - 1) for rows in batches) > 3e-5


def test_one_record_moves_the_count_by_at_most_a_half_in_large_batches():
    norms = np.random.default_rng(5).uniform(0.9, 1, size=(100_000, 1)).astype(np.float32)  # all count for a fraction
    norms[0] = 0.5
    assert abs(change(lambda r, i: bounded_sum_and_count(r, i, 1.0).centred_count, norms) - 0.5) < 1e-7

    def plain(norms: jax.Array, counts: jax.Array) -> tuple[jax.Array]:
        return (jnp.sum(jnp.where(counts, unclipped(clip_ratio(norms, 1.0)), 0)),)

    assert abs(change(plain, norms) - 0.5) > 5e-4


def test_double_precision_stays_inside_whatever_surrounds_the_sum(dtype):
    """Loops, batches and programs of float32 have a sum in float64 in them, and see nothing of it."""
    rows, everyone = np.stack([releases(dtype, seed) for seed in range(3)]), jnp.ones(SLOTS, bool)

    @jax.jit
    def many_rows(rows: jax.Array) -> jax.Array:
        return bounded_sum(rows, everyone, 1.0).value

    def added(total: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        return total + many_rows(rows), many_rows(rows)

    start = jnp.zeros(SIZE, dtype)
    total, each = jax.jit(lambda rows: jax.lax.scan(added, start, rows))(jnp.asarray(rows))
    expected = np.stack([naive(part, np.ones(SLOTS, bool), 1.0) for part in rows])
    for found in (each, jax.vmap(many_rows)(jnp.asarray(rows)), jax.jit(jax.vmap(many_rows))(jnp.asarray(rows))):
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=relative(dtype) * SLOTS)
    np.testing.assert_allclose(np.asarray(total), expected.sum(axis=0), rtol=0, atol=relative(dtype) * SLOTS * 3)
