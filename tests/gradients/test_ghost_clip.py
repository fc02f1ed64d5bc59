"""The clip of ghost clipping: true to the last bit, deaf to broken records, the same in parts and in layers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.units import GHOST_BITS, count, exact_norm_squared, limit_squared, same_bits, unit, values

from dpvi.gradients.ghost import clipped_gradient_sum, clipped_sum, whole_rows
from dpvi.gradients.ghost.contractions import Rows
from dpvi.gradients.ghost.norms import gradient_norms
from dpvi.gradients.ghost.parts import Part
from dpvi.gradients.ghost.whole_rows import cut_data, exact_product
from dpvi.mechanism.bounded_sum import bounded_sum
from dpvi.mechanism.gaussian import per_unit
from dpvi.mechanism.layers import Layers

INNER, OUTER = 30, 20


def clip(term, params, records, included, clip_norm, **options):
    """Compiled, with little optimisation: what these tests spend is compiling."""

    def run(params, records, included):
        return clipped_gradient_sum(term, params, records, included, clip_norm, **options)

    return jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})(params, records, included)


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
    """Every record's own clipped gradient in units, (n, INNER * OUTER)."""
    weights = jnp.zeros((INNER, OUTER), records["data"].dtype)

    def alone(record):
        batch = jax.tree.map(lambda leaf: leaf[None], record)
        return clipped_gradient_sum(bilinear, weights, batch, jnp.ones(1, bool), clip_norm).total

    return jax.vmap(alone)(records)


def exact_gradient_norms(records) -> np.ndarray:
    data, errors = (np.asarray(records[name], np.longdouble) for name in ("data", "errors"))
    return np.sqrt(np.sum(np.einsum("nsi,nso->nio", data, errors) ** 2, axis=(1, 2))).astype(float)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 4])
def test_the_norm_of_a_clipped_gradient_is_at_most_the_clip_norm(dtype, rows):
    """In whole numbers, so without any tolerance."""
    lost = {1: 3e-4, 4: 2e-3}[rows]  # data are cut to 2⁻¹⁶, or 2⁻¹⁴ where a record has several rows

    @settings(max_examples=20)
    @given(
        seed=st.integers(0, 2**32),
        decades=st.sampled_from([0.0, 2.0, 15.0, 30.0]),
        cancel=st.booleans(),
        clip_norm=st.sampled_from([1e-6, 0.3, 1.0, 1.9999, 1e4]),
    )
    def check(seed, decades, cancel, clip_norm):
        records = records_of(np.random.default_rng(seed), 4, rows, decades, cancel, dtype)
        clip_norm = float(np.asarray(clip_norm, dtype))
        clipped = np.asarray(one_by_one(records, jnp.asarray(clip_norm, dtype)))
        norms = exact_gradient_norms(records)
        for vector, norm in zip(clipped, norms, strict=True):
            square = exact_norm_squared(vector)
            assert square <= limit_squared(clip_norm, GHOST_BITS)
            if decades == 0 and not (cancel and rows > 1):  # and hardly less, where rows do not cancel
                shortest = min(norm, clip_norm) * (1 - lost) - clip_norm * 2.0**-18
                assert np.sqrt(float(square)) * float(unit(clip_norm, GHOST_BITS)) >= shortest

    with jax.enable_x64(dtype == "float64"):
        check()


def cancelling(count, rows, dtype):
    """Rows in pairs that annul but for a share, so that errors of which much is cut meet in a short gradient."""
    generator = np.random.default_rng(4)
    data = np.repeat(generator.uniform(0.9, 1.0, (count, 1, 2)), rows, axis=1)
    errors = generator.uniform(0.5, 1.0, (count, rows, 1))
    errors[:, 1::2] = -errors[:, ::2] * generator.uniform(0.5, 0.95, (count, rows // 2, 1))
    return {"data": jnp.asarray(data, dtype), "errors": jnp.asarray(errors * 10, dtype)}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rows", [2, 8, 32])
def test_rows_that_cancel_are_no_longer_when_they_are_cut(monkeypatch, rows):
    """Cutting errors can lengthen a sum of products; clip factors allow for it, and would fail without."""
    rows_of = Rows(*(cancelling(400, rows, "float64")[name][:, None] for name in ("data", "errors")))
    everyone = jnp.ones(400, bool)

    def longest() -> float:
        """Over 400 records, of the squared norm in units and of its limit."""
        gradient = Part(np.arange(2), cut_data(rows_of))
        ratio = clipped_sum._ratio([gradient], 1.0, 400, jnp.float64)
        scale = jnp.minimum(ratio, 1.0) * per_unit(1.0, 0, jnp.float64)
        alone = jax.vmap(lambda a, b, w: exact_product(Rows(a[None], b[None]), w[None], everyone[:1]))
        found = np.asarray(alone(*gradient.gradient, scale))
        return max(float(exact_norm_squared(each) / limit_squared(1.0, GHOST_BITS)) for each in found)

    assert 0.99 < longest() <= 1
    monkeypatch.setattr(clipped_sum, "allowance", lambda *sizes: 0.0)
    assert longest() > 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 3, 200])
def test_products_are_exact(dtype, rows):
    """The largest whole numbers that there may be, added in Python's integers and in the library."""
    generator = np.random.default_rng(rows)
    count, (coarse, fine) = 96, whole_rows._digits(rows)
    largest = 2 ** (fine + (1 if rows == 1 else 2))
    data = generator.choice([-(2**coarse), 2**coarse, 2**coarse - 1, 7], (count, 1, rows, 2))
    units = generator.choice([-largest, largest, largest - 1, 12345], (count, 1, rows, 3))
    present = generator.random(count) < 0.8
    with jax.enable_x64(dtype == "float64"):
        held = Rows(jnp.asarray(data * 2.0**-coarse, dtype), jnp.asarray(units * 2.0**-fine, dtype))
        found = exact_product(held, jnp.ones(count, dtype), jnp.asarray(present))
        kept = (np.asarray(held.errors, np.float64) * 2.0**fine).astype(np.int64)
        exact_data = (np.asarray(held.data, np.float64) * 2.0**coarse).astype(np.int64)
    expected = np.einsum("nhsi,nhso->hio", exact_data[present].astype(object), kept[present].astype(object))
    assert found.dtype == np.int64
    assert np.asarray(found).tolist() == expected.reshape(-1).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 3])
def test_data_are_cut_towards_zero(dtype, rows):
    generator = np.random.default_rng(6)
    data = generator.standard_normal((50, 1, rows, 7)) * 10 ** generator.uniform(-15, 15, (50, 1, 1, 1))
    with jax.enable_x64(dtype == "float64"):
        given = Rows(jnp.asarray(data, dtype), jnp.ones((50, 1, rows, 2), dtype))
        cut = cut_data(given)
        held, top = np.asarray(cut.data, np.float64), np.asarray(cut.errors, np.float64)[..., :1]
        exact = np.asarray(given.data, np.float64)
    fine = 2.0 ** whole_rows._digits(rows)[0]
    np.testing.assert_array_equal(held * fine, np.trunc(exact / top * fine))
    assert np.all(np.frexp(top)[0] == 0.5)
    largest = np.abs(held).max(axis=(1, 2, 3))
    assert np.all((largest >= 0.49) & (largest <= 1))


def test_a_matrix_of_too_many_rows_is_formed():
    assert whole_rows.is_worth_it(1, 1, 10_000, 10_000)
    assert whole_rows.is_worth_it(1, whole_rows.MOST_ROWS, 3, 3)
    assert not whole_rows.is_worth_it(1, 2 * whole_rows.MOST_ROWS, 3, 3)
    assert not whole_rows.is_worth_it(1, 1000, 1000, 1000)  # cutting could lengthen it by more than five per cent
    assert whole_rows.allowance(1, 1, 1000, 1000) == 0


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
    records = records_of(np.random.default_rng(2), 64, rows, 0.0, False, "float32")
    everyone, without = jnp.ones(64, bool), jnp.arange(64) != 2
    dirty = {**records, place: records[place].at[2, 0, 3].set(broken)}
    dirty["data"] = dirty["data"] * jnp.where(jnp.arange(64) == 2, 1e3, 1.0)[:, None, None].astype("float32")
    weights = jnp.zeros((INNER, OUTER))
    found, expected = (
        clip(bilinear, weights, each, included, 1.0) for each, included in [(dirty, everyone), (records, without)]
    )
    if np.isfinite(broken):  # a norm beyond the largest number, or a gradient that is clipped hard: bounded either way
        moved = np.asarray(found.total) - np.asarray(expected.total)
        assert exact_norm_squared(moved) <= limit_squared(1.0, GHOST_BITS)
    else:
        same_bits(found._replace(centred_count=expected.centred_count), expected)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("errors", [1.0, 1e30, 3e38])
def test_data_of_zero_add_zero_whatever_their_errors(rows, errors):
    records = records_of(np.random.default_rng(2), 64, rows, 0.0, False, "float32")
    dirty = {"data": records["data"].at[5].set(0), "errors": records["errors"].at[5].set(errors)}
    weights, everyone = jnp.zeros((INNER, OUTER)), jnp.ones(64, bool)
    found = clip(bilinear, weights, dirty, everyone, 1.0)
    expected = clip(bilinear, weights, records, jnp.arange(64) != 5, 1.0)
    np.testing.assert_array_equal(found.total, expected.total)


def network(params, record):
    hidden = jnp.tanh(record @ params["first"] + params["bias"])
    return jnp.sum(jnp.sin(hidden @ params["second"])) * params["gain"]


def network_and_records(dtype="float32"):
    generator = np.random.default_rng(3)
    shapes = {"bias": (6,), "first": (4, 6), "gain": (), "second": (6, 3)}
    params = {name: jnp.asarray(generator.standard_normal(shape), dtype) for name, shape in shapes.items()}
    return params, jnp.asarray(generator.standard_normal((11, 4)) * 3, dtype)


def sequence(params, record):
    """The same weights on several rows of a record."""
    hidden = jnp.tanh(record.reshape(2, 2) @ params["first"].reshape(2, 12) + params["bias"][0])
    return jnp.sum(jnp.sin(hidden)) + params["gain"] * jnp.sum(params["second"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("term", [network, sequence], ids=lambda term: term.__name__)
@pytest.mark.parametrize("layered", [False, True], ids=["flat", "layers"])
def test_neither_order_nor_parts_nor_microbatches_change_a_bit(dtype, term, layered):
    layers = Layers((6, 24, 1, 18), (0.1, 0.2, 0.3, 0.4)) if layered else None
    with jax.enable_x64(dtype == "float64"):
        params, few = network_and_records(dtype)
        scales = jnp.asarray(np.random.default_rng(8).uniform(0.1, 3, (192, 1)), dtype)
        records, included = jnp.resize(few, (192, 4)) * scales, np.arange(192) % 4 != 0

        def summed(records, included, size=None):
            return clip(term, params, records, jnp.asarray(included), 0.5, layers=layers, microbatch_size=size)

        whole = summed(records, included)
        for size in (1, 64, 100, 1000):
            same_bits(summed(records, included, size), whole)
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(192)
            same_bits(summed(records[order], included[order]), whole)
            some = np.random.default_rng(seed).random(192) < 0.5
            same_bits(summed(records, included & some).plus(summed(records, included & ~some)), whole)
        same_bits(summed(records[:64], included[:64]).plus(summed(records[64:], included[64:])), whole)


@pytest.mark.parametrize("microbatch_size", [0, -1, 2.0, True])
def test_a_microbatch_size_that_is_none_is_refused(microbatch_size):
    params, records = network_and_records()
    with pytest.raises(ValueError, match="microbatch_size must be a whole number"):
        clipped_gradient_sum(network, params, records, jnp.ones(11, bool), 0.5, microbatch_size=microbatch_size)


@jax.jit
def gradients_of(params, records):
    return jax.vmap(lambda record: jax.grad(network)(params, record))(records)


CUT = 11 * 2.0**-15  # what eleven records lose where data are cut to 2⁻¹⁶, in units of the clip norm


@pytest.mark.usefixtures("x64")
def test_layers_are_clipped_apart():
    params, records = network_and_records("float64")
    included = jnp.arange(11) < 9
    layers = Layers((6, 24, 1, 18), (0.1, 0.2, 0.3, 0.4))
    norms = np.asarray(layers.clip_norms)[layers.labels(49)]
    total = values(clip(network, params, records, included, 1e9, layers=layers), norms, GHOST_BITS)
    parts = [
        values(bounded_sum(leaf.reshape(11, -1), included, clip_norm), clip_norm)
        for leaf, clip_norm in zip(jax.tree.leaves(gradients_of(params, records)), layers.clip_norms, strict=True)
    ]
    assert np.all(np.abs(total - np.concatenate(parts)) <= CUT * norms)
    together = float(np.hypot.reduce(layers.clip_norms))
    flat = values(clip(network, params, records, included, together), together, GHOST_BITS)
    assert np.max(np.abs(total - flat)) > 0.01  # one clip for all is another mechanism
    alone = np.asarray(clip(network, params, records, jnp.arange(11) == 2, 1e9, layers=layers).total)
    for layer, clip_norm in enumerate(layers.clip_norms):
        own = alone[layers.labels(49) == layer]
        assert exact_norm_squared(own) <= limit_squared(clip_norm, GHOST_BITS)


@pytest.mark.usefixtures("x64")
def test_a_layer_that_cuts_through_a_matrix():
    params, records = network_and_records("float64")
    everyone = jnp.ones(11, bool)
    layers = Layers((20, 29), (0.1, 0.2))
    norms = np.asarray(layers.clip_norms)[layers.labels(49)]
    summed = clip(network, params, records, everyone, 1e9, layers=layers)
    rows = jnp.concatenate([leaf.reshape(11, -1) for leaf in jax.tree.leaves(gradients_of(params, records))], axis=1)
    formed = bounded_sum(rows, everyone, 1e9, layers=layers)
    assert np.all(np.abs(values(summed, norms, GHOST_BITS) - values(formed, norms)) <= CUT * norms)
    np.testing.assert_allclose(count(summed), count(formed), rtol=0, atol=1e-3)


def test_the_count_of_unclipped_records():
    params, records = network_and_records()
    norms = jnp.sqrt(
        sum(jnp.sum(leaf.reshape(11, -1) ** 2, axis=1) for leaf in jax.tree.leaves(gradients_of(params, records)))
    )
    included = jnp.arange(11) < 8
    clip_norm = float(jnp.sort(norms[:8])[1] + jnp.sort(norms[:8])[2]) / 2  # two of eight are shorter, by far
    for given_as in (clip_norm, jnp.asarray(clip_norm)):
        assert count(clip(network, params, records, included, given_as)) == 2 / 2 - 6 / 2
    for near in (float(jnp.sort(norms)[4]), jnp.sort(norms)[4]):  # where a record counts for a part, either way
        counted = count(clip(network, params, records, included, near))
        formed = count(bounded_sum(norms[:, None], included, near))
        np.testing.assert_allclose(counted, formed, rtol=0, atol=1e-3)
    assert count(clip(network, params, records, included, float("inf"))) == 4


def test_a_broken_record_counts_as_clipped():
    params, records = network_and_records()
    assert count(clip(network, params, records.at[1].set(jnp.nan), jnp.arange(11) < 2, 1e6)) == 0


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
    ghost = jax.make_jaxpr(lambda p, r: clipped_gradient_sum(network, p, r, included, 1.0).total)(params, records)
    formed = jax.make_jaxpr(gradients_of)(params, records)
    assert widest(formed.jaxpr) >= 30 * 50 * 60
    assert widest(ghost.jaxpr) <= size + 30 * 60


def test_it_works_over_several_data_sets_at_once():
    params, records = network_and_records()
    stacked = jnp.stack([records, records[::-1], records * 2])
    included = jnp.arange(11) < 7

    def total(records, clip_norm):
        return clipped_gradient_sum(network, params, records, included, clip_norm).total

    clip_norms = jnp.array([0.3, 0.5, 0.7])
    together = np.asarray(jax.jit(jax.vmap(total))(stacked, clip_norms))
    alone = [np.asarray(jax.jit(total)(each, clip_norm)) for each, clip_norm in zip(stacked, clip_norms, strict=True)]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-4, atol=2.0**18)


def test_records_may_carry_keys_and_the_term_may_close_over_tracers():
    params, records = network_and_records()
    keys = jax.random.split(jax.random.key(0), 11)

    def both(shift):
        def term(params, record):
            row, key = record
            return network(params, row + shift * jax.random.normal(key, (4,)))

        ghost = clipped_gradient_sum(term, params, (records, keys), jnp.ones(11, bool), 0.5, microbatch_size=4)
        formed = jax.vmap(lambda record: jax.flatten_util.ravel_pytree(jax.grad(term)(params, record))[0])
        return ghost, bounded_sum(formed((records, keys)), jnp.ones(11, bool), 0.5)

    ghost, formed = jax.jit(both)(jnp.asarray(0.1))
    np.testing.assert_allclose(values(ghost, 0.5, GHOST_BITS), values(formed, 0.5), rtol=0, atol=CUT * 0.5)


def test_half_precision_is_refused():
    with pytest.raises(TypeError, match="float32 or float64"):
        clipped_gradient_sum(network, jnp.ones(3, jnp.bfloat16), jnp.ones((2, 3)), jnp.ones(2, bool), 1.0)


def test_a_model_may_compute_in_half_precision():
    """Errors and data are rounded to eight bits, their norms and sums are not."""
    params, records = network_and_records()

    def term(params, record):
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (params, record))
        return network(*half).astype(jnp.float32)

    for clip_norm in (0.5, 1e3):
        found = clip(term, params, records, jnp.arange(11) == 4, clip_norm)
        assert 0 < exact_norm_squared(found.total) <= limit_squared(clip_norm, GHOST_BITS)
    alone = values(found, clip_norm, GHOST_BITS)
    expected = jax.flatten_util.ravel_pytree(jax.grad(network)(params, records[4]))[0]
    assert np.linalg.norm(alone - expected) < 0.1 * np.linalg.norm(expected)


def test_a_term_that_is_not_one_number_is_refused():
    with pytest.raises(ValueError, match="one number per record"):
        clipped_gradient_sum(lambda w, x: w * x, jnp.ones(3), jnp.ones((2, 3)), jnp.ones(2, bool), 1.0)


def test_a_record_of_many_takes_with_it_what_it_added():
    """It moves all later ones up a slot; none of them adds another bit."""
    size = 20_032

    def term(weights, row):
        return jnp.sum(row @ weights)

    total = jax.jit(lambda rows, included: clipped_gradient_sum(term, jnp.ones((2, 1)), rows, included, 1.0).total)
    rows = np.abs(np.random.default_rng(0).normal(size=(size, 2))).astype(np.float32) + 2  # clipped, in one orthant
    before = np.asarray(total(jnp.asarray(rows), jnp.ones(size, bool)))
    shorter = np.concatenate([rows[1:], rows[-1:]])
    after = np.asarray(total(jnp.asarray(shorter), jnp.arange(size) < size - 1))
    alone = np.asarray(total(jnp.asarray(rows), jnp.arange(size) == 0))
    np.testing.assert_array_equal(before - after, alone)
    assert exact_norm_squared(alone) <= limit_squared(1.0, GHOST_BITS)
    assert np.linalg.norm(alone) * float(unit(1.0, GHOST_BITS)) > 0.999

    @jax.jit
    def one_by_one(rows):
        """The named wrong answer: float32, one after the other."""
        scaled = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
        return jax.lax.scan(lambda total, row: (total + row, None), jnp.zeros(2), scaled)[0]

    moved = np.float64(one_by_one(jnp.asarray(rows))) - np.float64(one_by_one(jnp.asarray(rows[1:])))
    assert abs(np.linalg.norm(moved) - 1) > 1e-5
