"""Ghost clipping on random models: the same sum as clipping the gradient of every record, whatever uses a parameter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from support.small_models import clipped
from support.units import GHOST_BITS, values

from dpvi.gradients.ghost import clipped_gradient_sum
from dpvi.gradients.ghost.analysis import analyse
from dpvi.gradients.ghost.contractions import Rows
from dpvi.gradients.ghost.replay import flatten
from dpvi.mechanism.layers import Layers

SLOTS, WIDTH = 5, 4
# what these tests spend is compiling
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
ACTIVATIONS = [jnp.tanh, jax.nn.softplus, jax.nn.relu, jax.nn.gelu, jax.nn.sigmoid, lambda x: x]


# Every block maps (rows, WIDTH) to (rows, WIDTH) and says which parameters it needs.


def dense(p, h, act):
    return act(h @ p["W"] + p["b"])


def bare(p, h, act):
    return act(h @ p["W"])


def transposed(p, h, act):
    return act(h @ p["W"].T)


def on_the_left(p, h, act):
    return act(p["W"] @ h.T).T


def twice(p, h, act):
    return act(act(h @ p["W"]) @ p["W"])


def tied(p, h, act):
    return act(act(h @ p["W"]) @ p["W"].T)


def doubled(p, h, act):
    return act(h @ p["W"] + h @ (2 * p["W"]))


def row_used_again(p, h, act):
    return act(h @ p["W"]) + p["W"][0]


def half_used_again(p, h, act):
    return act(h @ p["W"]) + jnp.tile(h[:, :2] @ p["W"][:2, 2:], (1, 2))


def flipped(p, h, act):
    return act(h @ p["W"][::-1]) + h[:, :3] @ p["V"].reshape(4, 3).T


def scaled(p, h, act):
    return act(h * p["a"] + p["b"])


def positive(p, h, act):
    return act(h * jax.nn.softplus(p["a"]))


def normalised(p, h, act):
    return act(h @ (p["W"] / jnp.sqrt(1 + jnp.sum(p["W"] ** 2))))


def heads(p, h, act):
    return act(jnp.einsum("si,hio->sho", h, p["V"].reshape(2, 4, 2)[:, :, :2])).reshape(h.shape)


def grouped(p, h, act):
    return act(jnp.einsum("sgi,gio->sgo", h.reshape(-1, 2, 2), p["V"].reshape(2, 2, 2))).reshape(h.shape)


def in_a_loop(p, h, act):
    return jax.lax.scan(lambda carry, _: (act(carry @ p["W"]) + p["b"], None), h, None, length=3)[0]


def one_layer_each_turn(p, h, act):
    return jax.lax.scan(lambda carry, weight: (act(carry @ weight), None), h, jnp.stack([p["W"], p["W"].T]))[0]


def recomputed(p, h, act):
    return jax.checkpoint(lambda weight, h: act(h @ weight))(p["W"], h)


def branching(p, h, act):
    return jax.lax.cond(h[0, 0] > 0, lambda: act(h @ p["W"]), lambda: act(h * p["a"]))


def quadratic(p, h, act):
    return act(h @ (p["W"] @ p["W"]))


def unused(p, h, act):
    return act(h) + 0 * p["a"][:0].sum()


def stopped(p, h, act):
    return act(h @ jax.lax.stop_gradient(p["W"])) * p["a"]


def jitted(p, h, act):
    return jax.jit(lambda p, h: jax.jit(jnp.dot)(act(h), p["W"]) + p["b"])(p, h)


@jax.custom_vjp
def half_hearted(weight, h):
    """A product whose derivative is, by decree, half of what it is."""
    return h @ weight


half_hearted.defvjp(
    lambda weight, h: (h @ weight, (weight, h)),
    lambda kept, errors: (0.5 * kept[1].T @ errors, 0.5 * errors @ kept[0].T),
)


def own_rule(p, h, act):
    return act(half_hearted(p["W"], h @ p["V"]))


BLOCKS: list[tuple[Callable, dict[str, tuple[int, ...]]]] = [
    (dense, {"W": (4, 4), "b": (4,)}),
    (bare, {"W": (4, 4)}),
    (transposed, {"W": (4, 4)}),
    (on_the_left, {"W": (4, 4)}),
    (twice, {"W": (4, 4)}),
    (tied, {"W": (4, 9)}),
    (doubled, {"W": (4, 4)}),
    (row_used_again, {"W": (4, 4)}),
    (half_used_again, {"W": (4, 4)}),
    (flipped, {"W": (4, 4), "V": (12,)}),
    (scaled, {"a": (4,), "b": (4,)}),
    (positive, {"a": (4,)}),
    (normalised, {"W": (4, 4)}),
    (heads, {"V": (16,)}),
    (grouped, {"V": (8,)}),
    (in_a_loop, {"W": (4, 4), "b": (4,)}),
    (one_layer_each_turn, {"W": (4, 4)}),
    (recomputed, {"W": (4, 4)}),
    (branching, {"W": (4, 4), "a": (4,)}),
    (quadratic, {"W": (4, 4)}),
    (unused, {"a": (4,)}),
    (stopped, {"W": (4, 4), "a": (4,)}),
    (jitted, {"W": (4, 4), "b": (4,)}),
    (own_rule, {"W": (4, 4), "V": (4, 4)}),
]


def make_model(blocks, activations, widths, share, rows, seed, dtype):
    """A term, parameters and records: the blocks in a row, then dense layers of drawn widths, then a sum."""
    generator = np.random.default_rng(seed)

    def draw(shape):
        return jnp.asarray(generator.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[:-1]))), dtype)

    first = {name: draw(shape) for name, shape in blocks[0][1].items()}
    params = {"blocks": [first], "dense": []}
    for _, shapes in blocks[1:]:
        shared = share and shapes == blocks[0][1]
        params["blocks"].append({} if shared else {name: draw(shape) for name, shape in shapes.items()})
    sizes = [WIDTH, *widths]
    for inner, outer in pairwise(sizes):
        params["dense"].append({"W": draw((inner, outer)), "b": draw((outer,))})

    def term(params, record):
        h = record["rows"]
        for (block, _), own, act in zip(blocks, params["blocks"], activations, strict=False):
            h = block(own or params["blocks"][0], h, act)
        for layer in params["dense"]:
            h = jnp.tanh(h @ layer["W"] + layer["b"])
        return jnp.sum(h * record["weight"])

    records = {"rows": draw((SLOTS, rows, WIDTH)) * 2, "weight": draw((SLOTS,)) * 3}
    return term, params, records


def reference(term, params, records, included, clip_norm):
    """Clipped gradients of all records, added up in double precision, and the sum of their norms."""
    gradients = compiled(jax.vmap(lambda record: ravel_pytree(jax.grad(term)(params, record))[0]))(records)
    rows = np.asarray(gradients, np.float64)[np.asarray(included)]
    norms = np.linalg.norm(rows, axis=1)
    factors = np.minimum(1, clip_norm / np.maximum(norms, 1e-300))
    return factors @ rows, np.sum(factors * norms) + 1e-30


def difference(model, clip_norm, microbatch_size=None) -> float:
    """Largest difference to the reference, relative to what the records could add up to."""
    term, params, records = model
    included = jnp.arange(SLOTS) != 1
    total = compiled(
        lambda params, records: clipped_gradient_sum(
            term, params, records, included, clip_norm, microbatch_size=microbatch_size
        )
    )(params, records)
    expected, scale = reference(term, params, records, included, clip_norm)
    assert total.total.shape == expected.shape
    return float(np.max(np.abs(values(total, clip_norm, GHOST_BITS) - expected)) / scale)


# Data are cut to 2⁻¹⁴ of the power of two above their largest entry, where a record has several rows. Rows that cancel
# make the Gram form clip a little more (norms.py); nothing here cancels beyond a few digits.
CUT, WHOLE = 5e-4, 1e-10


@pytest.fixture
def nothing_is_cut(monkeypatch):
    """Data as they are, and products in float64, rounded to units of 2⁻³⁸: what is left is the analysis of a model."""

    def product(rows: Rows, scale: jax.Array, present: jax.Array) -> jax.Array:
        weights = jnp.where(present, scale, 0.0)
        found = jnp.einsum("nhsi,nhso,n->hio", rows.data, rows.errors, weights)
        return jnp.round(found * 2.0**GHOST_BITS).astype(jnp.int64).reshape(-1)

    monkeypatch.setattr("dpvi.gradients.ghost.parts.cut_data", lambda rows: rows)
    monkeypatch.setattr("dpvi.gradients.ghost.parts.exact_product", product)
    monkeypatch.setattr("dpvi.gradients.ghost.clipped_sum.allowance", lambda *sizes: 0.0)


@pytest.mark.usefixtures("x64", "nothing_is_cut")
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block[0].__name__)
def test_every_block_alone(block):
    model = make_model([block], [jnp.tanh], [6], False, 2, 3, "float64")
    assert difference(model, 0.4) < WHOLE


@pytest.mark.parametrize("block", [dense, twice, tied, heads, row_used_again], ids=lambda block: block.__name__)
def test_cutting_costs_a_few_digits(block):
    shapes = next(shapes for each, shapes in BLOCKS if each is block)
    for rows in (1, 2):
        assert difference(make_model([(block, shapes)], [jnp.tanh], [6], False, rows, 3, "float32"), 0.4) < CUT


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_models(dtype):
    @settings(max_examples=6)
    @given(
        blocks=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=3),
        activations=st.lists(st.sampled_from(ACTIVATIONS), min_size=3, max_size=3),
        widths=st.lists(st.integers(1, 9), max_size=2),
        share=st.booleans(),
        rows=st.sampled_from([1, 2, 4]),
        clip_norm=st.sampled_from([0.05, 1.0, 20.0, float("inf")]),
        microbatch_size=st.sampled_from([None, 1, 2, 4]),
        seed=st.integers(0, 2**32),
    )
    def check(blocks, activations, widths, share, rows, clip_norm, microbatch_size, seed):
        model = make_model(blocks, activations, widths, share, rows, seed, dtype)
        assert difference(model, clip_norm, microbatch_size) < CUT

    with jax.enable_x64(dtype == "float64"):
        check()


@pytest.mark.usefixtures("x64", "nothing_is_cut")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_layers_cut_anywhere(seed):
    """Boundaries of layers at random places, through matrices, shared rows and biases alike."""
    blocks = [block for block in BLOCKS if block[0] in (dense, row_used_again, tied, scaled)]
    term, params, records = make_model(blocks, [jnp.tanh] * 4, [3], False, 1, seed, "float64")
    size = ravel_pytree(params)[0].size
    generator = np.random.default_rng(seed)
    cuts = np.sort(generator.choice(np.arange(1, size), 5, replace=False))
    sizes = np.diff([0, *cuts, size]).tolist()
    layers = Layers(tuple(sizes), tuple(generator.uniform(0.01, 0.3, 6).tolist()))
    everyone = jnp.ones(SLOTS, bool)
    total = compiled(lambda p, r: clipped_gradient_sum(term, p, r, everyone, 1e9, layers=layers))(params, records)
    rows = compiled(jax.vmap(lambda record: ravel_pytree(jax.grad(term)(params, record))[0]))(records)
    parts = zip(np.split(np.asarray(rows), cuts, axis=1), layers.clip_norms, strict=True)
    expected = [clipped(part, clip_norm).sum(axis=0) for part, clip_norm in parts]
    found = values(total, np.asarray(layers.clip_norms)[layers.labels(size)], GHOST_BITS)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=0, atol=WHOLE)


def norms_of_rows(rows: Rows) -> jax.Array:
    """The named wrong answer: norms of the rows' gradients, squared and added, cross terms forgotten."""
    squares = jnp.sum(rows.data**2, axis=-1) * jnp.sum(rows.errors**2, axis=-1)
    return jnp.sqrt(jnp.sum(squares, axis=-1))


@pytest.mark.usefixtures("x64", "nothing_is_cut")
@pytest.mark.parametrize(("block", "rows"), [(bare, 2), (twice, 1), (tied, 1)])
def test_norms_without_cross_terms_are_found_out(monkeypatch, block, rows):
    shapes = {"W": (4, 9)} if block is tied else {"W": (4, 4)}
    model = make_model([(block, shapes)], [jax.nn.softplus], [], False, rows, 5, "float64")
    assert difference(model, 0.4) < WHOLE
    monkeypatch.setattr("dpvi.gradients.ghost.parts.gradient_norms", norms_of_rows)
    assert difference(model, 0.4) > 1e-3


def analysed(model):
    term, params, records = model
    vector, unravel = ravel_pytree(params)
    record = jax.tree.map(lambda leaf: leaf[0], records)
    return analyse(flatten(lambda flat, record: term(unravel(flat), record), vector, record))


@pytest.mark.parametrize(
    ("block", "rows", "matrices", "copies"),
    [
        (dense, 1, 1, 4),
        (transposed, 1, 1, 0),
        (on_the_left, 1, 1, 0),
        (jitted, 1, 1, 4),
        (twice, 1, 1, 0),  # two rows, 8 numbers of Gram matrices, less than the 16 of the gradient
        (twice, 2, 0, 16),
        (bare, 4, 0, 16),
        (doubled, 1, 0, 16),
        (row_used_again, 1, 0, 16),
        (half_used_again, 1, 0, 16),
        (quadratic, 1, 0, 16),
        (in_a_loop, 1, 0, 20),
        (grouped, 1, 1, 0),
        (unused, 1, 0, 0),
        (own_rule, 1, 1, 16),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_is_formed_and_what_is_not(block, rows, matrices, copies):
    shapes = next(shapes for each, shapes in BLOCKS if each is block)
    found = analysed(make_model([(block, shapes)], [jnp.tanh], [], False, rows, 1, "float32"))
    assert len(found.matrices) == matrices
    assert sum(each.positions.size for each in found.copies) == copies
