"""The clip of ghost clipping: true in floating point, deaf to broken records, the same in parts and in layers."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpvi.gradients.ghost import clipped_gradient_sum, clipped_gradient_sum_and_count
from dpvi.gradients.ghost.contractions import Rows
from dpvi.gradients.ghost.norms import gradient_norms
from dpvi.mechanism.bounded_sum import bounded_sum, bounded_sum_and_count
from dpvi.mechanism.layers import Layers

INNER, OUTER = 30, 20


def clip_and_count(term, params, records, included, clip_norm, **options):
    """Compiled, with little optimisation: what these tests spend is compiling."""

    def run(params, records):
        return clipped_gradient_sum_and_count(term, params, records, included, clip_norm, **options)

    return jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})(params, records)


def clip(*arguments, **options):
    return clip_and_count(*arguments, **options).total.value


def bilinear(weights, record):
    """A term whose gradient is AᵀB, so that any A and B can be had."""
    return jnp.sum((record["data"] @ weights) * record["errors"])


def records_of(generator, count, rows, decades, cancel, dtype):
    """Rows whose sizes span ``decades`` up and down, oppositely in A and B; with ``cancel`` they almost annul."""
    sizes = 10 ** generator.uniform(-decades, decades, (count, rows, 1))
    data = generator.standard_normal((count, rows, INNER)) * sizes
    errors = generator.standard_normal((count, rows, OUTER)) / sizes * 10 ** generator.uniform(-3, 3, (count, 1, 1))
    if cancel and rows > 1:
        data[:, 1], errors[:, 1] = data[:, 0], -errors[:, 0] * (1 + 1e-4)
    return {"data": jnp.asarray(data, dtype), "errors": jnp.asarray(errors, dtype)}


@jax.jit
def one_by_one(records, clip_norm):
    """Every record's own clipped gradient, (n, INNER, OUTER)."""
    weights = jnp.zeros((INNER, OUTER), records["data"].dtype)

    def alone(record):
        batch = jax.tree.map(lambda leaf: leaf[None], record)
        return clipped_gradient_sum(bilinear, weights, batch, jnp.ones(1, bool), clip_norm).value

    return jax.vmap(alone)(records)


def exact_square(vector: np.ndarray) -> Fraction:
    return sum((Fraction(float(entry)) ** 2 for entry in vector.reshape(-1)), Fraction(0))


def exact_gradient_norms(records) -> np.ndarray:
    data, errors = (np.asarray(records[name], np.longdouble) for name in ("data", "errors"))
    return np.sqrt(np.sum(np.einsum("nsi,nso->nio", data, errors) ** 2, axis=(1, 2))).astype(float)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 4])
def test_the_norm_of_a_clipped_gradient_is_at_most_the_clip_norm(dtype, rows):
    lost = {"float32": 2e-5, "float64": 1e-13}[dtype]

    @settings(max_examples=20)
    @given(
        seed=st.integers(0, 2**32),
        decades=st.sampled_from([0.0, 2.0, 15.0, 30.0]),
        cancel=st.booleans(),
        clip_norm=st.sampled_from([1e-6, 0.3, 1.0, 1e4]),
    )
    def check(seed, decades, cancel, clip_norm):
        records = records_of(np.random.default_rng(seed), 4, rows, decades, cancel, dtype)
        clipped = np.asarray(one_by_one(records, jnp.asarray(clip_norm, dtype)))
        limit = Fraction(float(np.asarray(clip_norm, dtype)))
        norms = exact_gradient_norms(records)
        for vector, norm in zip(clipped, norms, strict=True):
            square = exact_square(vector)
            assert square <= limit**2
            if decades == 0 and not (cancel and rows > 1):  # and hardly less, where rows do not cancel
                assert np.sqrt(float(square)) >= min(norm, clip_norm) * (1 - lost * rows**2)

    with jax.enable_x64(dtype == "float64"):
        check()


def plain_norms(rows: Rows) -> jax.Array:
    """The named wrong answer: right on paper, and too small by a rounding error for half of all records."""
    gram = jnp.einsum("nhsi,nhti->nhst", rows.data, rows.data) * jnp.einsum("nhso,nhto->nhst", rows.errors, rows.errors)
    return jnp.sqrt(jnp.maximum(jnp.sum(gram, axis=(2, 3)), 0))


@pytest.mark.parametrize(("rows", "cancel", "share"), [(1, False, 0.2), (4, True, 0.2)])
def test_plain_norms_are_too_small(rows, cancel, share):
    generator = np.random.default_rng(1)
    records = records_of(generator, 200, rows, 0.0, False, "float32")
    if cancel:  # all rows annul but for the last digits
        data, errors = (np.array(records[name]) for name in ("data", "errors"))
        data[:], errors[:, 1:] = data[:, :1], -errors[:, :1] / 3
        records = {"data": jnp.asarray(data), "errors": jnp.asarray(errors)}
    joined = Rows(records["data"][:, None], records["errors"][:, None])
    exact = exact_gradient_norms(records)
    assert np.all(np.asarray(gradient_norms(joined), np.float64)[:, 0] >= exact)
    assert np.mean(np.asarray(plain_norms(joined), np.float64)[:, 0] < exact) > share


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("place", ["data", "errors"])
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf, 3e38])
def test_a_broken_record_adds_zero_and_disturbs_nobody(rows, place, broken):
    records = records_of(np.random.default_rng(2), 6, rows, 0.0, False, "float32")
    everyone, without = jnp.ones(6, bool), jnp.arange(6) != 2
    dirty = {**records, place: records[place].at[2, 0, 3].set(broken)}
    dirty["data"] = dirty["data"] * jnp.where(jnp.arange(6) == 2, 1e3, 1.0)[:, None, None].astype("float32")
    weights = jnp.zeros((INNER, OUTER))
    total, expected = (
        np.asarray(clip(bilinear, weights, each, included, 1.0))
        for each, included in [(dirty, everyone), (records, without)]
    )
    if np.isfinite(broken):  # a norm beyond the largest number, or a gradient that is clipped hard: bounded either way
        assert np.linalg.norm(total.astype(float) - expected) <= 1 + 1e-6
    else:
        np.testing.assert_array_equal(total, expected)


def network(params, record):
    hidden = jnp.tanh(record @ params["first"] + params["bias"])
    return jnp.sum(jnp.sin(hidden @ params["second"])) * params["gain"]


def network_and_records(dtype="float32"):
    generator = np.random.default_rng(3)
    shapes = {"bias": (6,), "first": (4, 6), "gain": (), "second": (6, 3)}
    params = {name: jnp.asarray(generator.standard_normal(shape), dtype) for name, shape in shapes.items()}
    return params, jnp.asarray(generator.standard_normal((11, 4)) * 3, dtype)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("microbatch_size", [1, 4, 100])
def test_microbatches_change_nothing(microbatch_size):
    params, records = network_and_records("float64")
    included = jnp.arange(11) % 4 != 0
    whole = clip_and_count(network, params, records, included, 0.5)
    parts = clip_and_count(network, params, records, included, 0.5, microbatch_size=microbatch_size)
    np.testing.assert_allclose(parts.total.value, whole.total.value, rtol=1e-13, atol=1e-14)
    assert float(parts.centred_count.value) == float(whole.centred_count.value)


@pytest.mark.parametrize("microbatch_size", [0, -1, 2.0, True])
def test_a_microbatch_size_that_is_none_is_refused(microbatch_size):
    params, records = network_and_records()
    with pytest.raises(ValueError, match="microbatch_size must be a whole number"):
        clipped_gradient_sum(network, params, records, jnp.ones(11, bool), 0.5, microbatch_size=microbatch_size)


@jax.jit
def gradients_of(params, records):
    return jax.vmap(lambda record: jax.grad(network)(params, record))(records)


@pytest.mark.usefixtures("x64")
def test_layers_are_clipped_apart():
    params, records = network_and_records("float64")
    included = jnp.arange(11) < 9
    layers = Layers((6, 24, 1, 18), (0.1, 0.2, 0.3, 0.4))
    total = clip(network, params, records, included, 1e9, layers=layers)
    parts = [
        bounded_sum(leaf.reshape(11, -1), included, clip_norm).value
        for leaf, clip_norm in zip(jax.tree.leaves(gradients_of(params, records)), layers.clip_norms, strict=True)
    ]
    np.testing.assert_allclose(total, jnp.concatenate(parts), rtol=1e-11, atol=1e-13)
    together = float(np.hypot.reduce(layers.clip_norms))
    flat = clip(network, params, records, included, together)
    assert np.max(np.abs(np.asarray(total - flat))) > 0.01  # one clip for all is another mechanism
    alone = clip(network, params, records, jnp.arange(11) == 2, 1e9, layers=layers)
    assert np.linalg.norm(alone) <= together


@pytest.mark.usefixtures("x64")
def test_a_layer_that_cuts_through_a_matrix():
    params, records = network_and_records("float64")
    everyone = jnp.ones(11, bool)
    layers = Layers((20, 29), (0.1, 0.2))
    summed = clip_and_count(network, params, records, everyone, 1e9, layers=layers)
    rows = jnp.concatenate([leaf.reshape(11, -1) for leaf in jax.tree.leaves(gradients_of(params, records))], axis=1)
    parts = [bounded_sum(rows[:, :20], everyone, 0.1).value, bounded_sum(rows[:, 20:], everyone, 0.2).value]
    np.testing.assert_allclose(summed.total.value, jnp.concatenate(parts), rtol=1e-11, atol=1e-13)
    formed = bounded_sum_and_count(rows, everyone, 1e9, layers=layers)
    np.testing.assert_allclose(summed.total.value, formed.total.value, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(summed.centred_count.value, formed.centred_count.value, rtol=1e-11)


def test_the_count_of_unclipped_records():
    params, records = network_and_records()
    norms = jnp.sqrt(
        sum(jnp.sum(leaf.reshape(11, -1) ** 2, axis=1) for leaf in jax.tree.leaves(gradients_of(params, records)))
    )
    included = jnp.arange(11) < 8
    clip_norm = float(jnp.sort(norms[:8])[1] + jnp.sort(norms[:8])[2]) / 2  # two of eight are shorter, by far
    for given_as in (clip_norm, jnp.asarray(clip_norm)):
        counted = clip_and_count(network, params, records, included, given_as)
        assert float(counted.centred_count.value) == 2 / 2 - 6 / 2
    for near in (float(jnp.sort(norms)[4]), jnp.sort(norms)[4]):  # where a record counts for a part, either way
        counted = clip_and_count(network, params, records, included, near).centred_count.value
        formed = bounded_sum_and_count(norms[:, None], included, near).centred_count.value
        np.testing.assert_allclose(counted, formed, rtol=0, atol=1e-3)
    everyone = clip_and_count(network, params, records, included, float("inf"))
    assert float(everyone.centred_count.value) == 4


def test_a_broken_record_counts_as_clipped():
    params, records = network_and_records()
    counted = clip_and_count(network, params, records.at[1].set(jnp.nan), jnp.arange(11) < 2, 1e6)
    assert float(counted.centred_count.value) == 0


def widest(jaxpr) -> int:
    """Entries of the largest array in a jaxpr, inner ones included."""
    sizes = [var.aval.size for equation in jaxpr.eqns for var in equation.outvars]
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                sizes.append(widest(inner))
    return max(sizes, default=0)


def test_no_gradient_of_a_single_record_is_formed():
    shapes = {"bias": (60,), "first": (50, 60), "gain": (), "second": (60, 40)}
    params = {name: jnp.ones(shape) for name, shape in shapes.items()}
    records, included = jnp.ones((30, 50)), jnp.ones(30, bool)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    ghost = jax.make_jaxpr(lambda p, r: clipped_gradient_sum(network, p, r, included, 1.0).value)(params, records)
    formed = jax.make_jaxpr(gradients_of)(params, records)
    assert widest(formed.jaxpr) >= 30 * 50 * 60
    assert widest(ghost.jaxpr) <= size + 30 * 60


def test_it_works_over_several_data_sets_at_once():
    params, records = network_and_records()
    stacked = jnp.stack([records, records[::-1], records * 2])
    included = jnp.arange(11) < 7

    def total(records, clip_norm):
        return clipped_gradient_sum(network, params, records, included, clip_norm).value

    clip_norms = jnp.array([0.3, 0.5, 0.7])
    together = jax.jit(jax.vmap(total))(stacked, clip_norms)
    alone = [jax.jit(total)(each, clip_norm) for each, clip_norm in zip(stacked, clip_norms, strict=True)]
    np.testing.assert_allclose(together, jnp.stack(alone), rtol=1e-4, atol=1e-6)


def test_records_may_carry_keys_and_the_term_may_close_over_tracers():
    params, records = network_and_records()
    keys = jax.random.split(jax.random.key(0), 11)

    def both(shift):
        def term(params, record):
            row, key = record
            return network(params, row + shift * jax.random.normal(key, (4,)))

        ghost = clipped_gradient_sum(term, params, (records, keys), jnp.ones(11, bool), 0.5, microbatch_size=4).value
        formed = jax.vmap(lambda record: jax.flatten_util.ravel_pytree(jax.grad(term)(params, record))[0])
        return ghost, bounded_sum(formed((records, keys)), jnp.ones(11, bool), 0.5).value

    ghost, formed = jax.jit(both)(jnp.asarray(0.1))
    np.testing.assert_allclose(ghost, formed, rtol=0, atol=1e-4)


def test_half_precision_is_refused():
    with pytest.raises(TypeError, match="float32 or float64"):
        clipped_gradient_sum(network, jnp.ones(3, jnp.bfloat16), jnp.ones((2, 3)), jnp.ones(2, bool), 1.0)


def test_a_model_may_compute_in_half_precision():
    """Errors and data are rounded to eight bits, their norms and sums are not."""
    params, records = network_and_records()

    def term(params, record):
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (params, record))
        return network(*half).astype(jnp.float32)

    for clip_norm, slack in ((0.5, 1e-6), (1e3, 1e9)):
        alone = clip(term, params, records, jnp.arange(11) == 4, clip_norm)
        assert 0 < np.linalg.norm(alone) <= clip_norm * (1 + slack)
    expected = jax.flatten_util.ravel_pytree(jax.grad(network)(params, records[4]))[0]
    assert np.linalg.norm(alone - expected) < 0.1 * np.linalg.norm(expected)


def test_a_term_that_is_not_one_number_is_refused():
    with pytest.raises(ValueError, match="one number per record"):
        clipped_gradient_sum(lambda w, x: w * x, jnp.ones(3), jnp.ones((2, 3)), jnp.ones(2, bool), 1.0)


def test_rounding_of_a_large_batch_stays_far_below_the_clip_norm():
    """A record that leaves moves all later ones up a slot; parts of a bounded size keep what that rounds small.

    Rounding is random: root mean squares over eight batches are compared, whose standard errors are a quarter of them.
    """
    count, everyone = 100_000, jnp.ones(100_000, bool)

    def in_parts(rows, included):
        return clipped_gradient_sum(lambda weights, row: jnp.sum(row @ weights), jnp.ones((2, 1)), rows, included, 1.0)

    def one_by_one(rows, included):
        scaled = jnp.where(included[:, None], rows / jnp.linalg.norm(rows, axis=1, keepdims=True), 0)
        return (jax.lax.scan(lambda total, row: (total + row, None), jnp.zeros(2), scaled)[0],)

    def error(adder):
        added, errors = jax.jit(adder), []
        for seed in range(8):  # all rows are clipped, and lie in one orthant
            rows = np.abs(np.random.default_rng(seed).normal(size=(count, 2))).astype(np.float32) + 2
            shorter = np.concatenate([rows[1:], rows[-1:]])
            sums = added(jnp.asarray(rows), everyone), added(jnp.asarray(shorter), jnp.arange(count) < count - 1)
            before, after = (sum(np.float64(part) for part in total) for total in sums)
            errors.append(np.linalg.norm(before - after) - 1)
        return np.sqrt(np.mean(np.square(errors)))

    assert error(in_parts) < 1e-3
    assert error(one_by_one) > 1.5e-3  # the named wrong answer


@pytest.mark.parametrize("size", [1, 11, 16, 17])
def test_slots_that_fill_up_a_tile_add_nothing(monkeypatch, size):
    """As on an accelerator; the last record stands in every slot that is filled up, and must not count again."""
    params, few = network_and_records()
    records = jnp.tile(few, (2, 1))[:size]
    plain = clipped_gradient_sum(network, params, records, jnp.ones(size, bool), 0.5).value
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    filled = clipped_gradient_sum(network, params, records, jnp.ones(size, bool), 0.5).value
    np.testing.assert_allclose(filled, plain, rtol=1e-5, atol=1e-5)
    again = jnp.concatenate([records, records[-1:]])
    counted = clipped_gradient_sum(network, params, again, jnp.ones(size + 1, bool), 0.5).value
    assert np.max(np.abs(counted - plain)) > 1e-3


def test_large_batches_are_added_in_blocks(monkeypatch):
    """One contraction over all records, the wrong answer, rounds more, and so does the change when a record leaves."""
    rows = np.abs(np.random.default_rng(0).normal(size=(8, 2048, 2))).astype(np.float32) + 2  # clipped, in one orthant
    everyone = jnp.ones(2048, bool)

    def errors() -> list[float]:
        def total(records):
            return clipped_gradient_sum(
                lambda weights, row: jnp.sum(row @ weights), jnp.ones((2, 1)), records, everyone, 1.0
            )

        found = jax.jit(jax.vmap(total))(jnp.asarray(rows))
        sums = np.asarray(found.high, float) + np.asarray(found.low, float)
        exact = (rows.astype(float) / np.linalg.norm(rows.astype(float), axis=2, keepdims=True)).sum(axis=1)
        return np.linalg.norm(sums - exact * (np.sum(sums * exact, 1) / np.sum(exact**2, 1))[:, None], axis=1)

    in_blocks = np.median(errors())
    monkeypatch.setattr("dpvi.gradients.ghost.clipped_sum._ADDED_PLAINLY", 2048)
    assert in_blocks < np.median(errors()) / 1.5
