"""The step with ghost clipping: chosen by size or on request, and the same step either way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.small_models import private_plan
from support.units import GHOST_BITS, count, same_bits, values

import dpvi
from dpvi.declared.clipping import PerLayer, QuantileClipping
from dpvi.families import MeanField
from dpvi.gradients import Aligned, Vanilla
from dpvi.gradients.ghost import uses_ghost_clipping
from dpvi.models.functions import from_functions
from dpvi.records.sampling import poisson_sampler
from dpvi.run.program.step import Algorithm, clipped_sum

GENERATOR = np.random.default_rng(7)
INPUTS, HIDDEN, NUM_RECORDS = 5, 4, 60
RECORDS = (GENERATOR.standard_normal((NUM_RECORDS, INPUTS)), GENERATOR.standard_normal(NUM_RECORDS))


def network_model():
    """Regression by a small network with a prior on its weights."""

    def log_likelihood(parameters, record):
        x, y = record
        mean = jnp.tanh(x @ parameters["first"] + parameters["bias"]) @ parameters["second"]
        return -0.5 * (y - mean) ** 2

    return from_functions(
        log_prior=lambda parameters: -0.5 * sum(jnp.sum(leaf**2) for leaf in parameters.values()),
        log_likelihood=log_likelihood,
        parameters={"first": (INPUTS, HIDDEN), "bias": (HIDDEN,), "second": (HIDDEN,)},
    )


@dataclass(frozen=True)
class GhostAligned(Aligned):
    """Aligned, with the term whose gradient it releases."""

    ghost_clipping: bool | None = None

    def per_record_term(self, model, family, xi, eta, queries):
        def term(stacked, record):
            return jnp.sum(jax.vmap(model.log_likelihood, (0, None))(stacked.reshape(queries.shape), record))

        return queries.reshape(-1), term


@dataclass(frozen=True)
class GhostVanilla(Vanilla):
    """Vanilla, likewise: its parameters meet η before they meet a record, so their gradients have to be formed."""

    ghost_clipping: bool | None = None

    def per_record_term(self, model, family, xi, eta, queries):
        def term(xi, record):
            z = jax.vmap(family.transform, (None, 0))(xi, eta)
            return jnp.mean(jax.vmap(model.log_likelihood, (0, None))(z, record))

        return xi, term


def noisy_sums(estimator, clip_norm=0.8):
    plan = private_plan(12, sampling_rate=0.3, clip_norm=clip_norm)
    fitted = dpvi.fit(
        network_model(), RECORDS, plan, estimator=estimator, optimizer=optax.sgd(0.01), seed=4, progress=False
    )
    return np.asarray(fitted.trace.noisy_sums)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("estimator", [GhostAligned(num_draws=2), GhostVanilla()], ids=lambda e: type(e).__name__)
def test_a_fit_releases_the_same_either_way(estimator):
    formed, ghost = (noisy_sums(replace(estimator, ghost_clipping=asked)) for asked in (False, True))
    # data of a matrix are cut to 2⁻¹⁶, errors to 2⁻²² C₂, and both sums are snapped to a grid of at most σC/1024
    np.testing.assert_allclose(ghost, formed, rtol=0, atol=2e-3)
    assert np.max(np.abs(noisy_sums(replace(estimator, ghost_clipping=False), clip_norm=0.9) - formed)) > 0.1


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("clipping", [None, PerLayer({"first": 0.8, "*": 0.6}), QuantileClipping(expected_batch=3.0)])
def test_neither_ghosts_nor_microbatches_change_anything(clipping):
    family, model = MeanField(), network_model()
    plan = private_plan(1, sampling_rate=0.3, clip_norm=1.0)
    algorithm = Algorithm(
        model,
        family,
        GhostAligned(num_draws=2),
        optax.sgd(0.01),
        replace(plan, clipping=clipping),
        poisson_sampler(NUM_RECORDS, 0.3),
    )
    xi = family.initial(jnp.asarray(GENERATOR.standard_normal(model.dimension)))
    eta = jnp.asarray(GENERATOR.standard_normal((2, model.dimension)))
    queries = jax.vmap(family.transform, (None, 0))(xi, eta)
    num_slots = 192
    records = jax.tree.map(lambda leaf: jnp.asarray(np.resize(leaf, (num_slots, *leaf.shape[1:]))), RECORDS)
    included = jnp.arange(num_slots) % 5 != 0

    @jax.jit
    def totals(records, clip_norm):
        chosen = [
            replace(algorithm, estimator=GhostAligned(num_draws=2, ghost_clipping=asked), microbatch_size=size)
            for asked in (False, True)
            for size in (None, 7, 128)
        ]
        return [clipped_sum(each, xi, eta, queries, clip_norm)(records, included) for each in chosen]

    adaptive = isinstance(clipping, QuantileClipping)
    clip_norm = 0.9 if adaptive else 1.0
    formed, *formed_parts, ghost, seven, many = totals(records, jnp.asarray(clip_norm) if adaptive else None)
    for parts, whole in [*((each, formed) for each in formed_parts), (seven, ghost), (many, ghost)]:
        same_bits(parts, whole)
    layers = algorithm.layers
    norms = clip_norm if layers is None else np.asarray(layers.clip_norms)[layers.labels(formed.total.size)]
    expected = values(formed, norms)
    assert np.linalg.norm(expected) > 1
    assert abs(count(formed)) < 76  # some of 153 are clipped, and some are not
    # every record loses up to 2⁻¹⁶ of its data
    np.testing.assert_allclose(values(ghost, norms, GHOST_BITS), expected, rtol=0, atol=153 * 2.0**-16)
    np.testing.assert_allclose(count(ghost), count(formed), rtol=0, atol=153 * 2.0**-13)


def test_which_path_is_taken():
    large, small = 700_000, 100
    assert not uses_ghost_clipping(Aligned(), large)  # it does not say of which term it is the gradient
    assert uses_ghost_clipping(GhostAligned(), large)
    assert not uses_ghost_clipping(GhostAligned(), small)
    assert uses_ghost_clipping(GhostAligned(ghost_clipping=True), small)
    assert not uses_ghost_clipping(GhostAligned(ghost_clipping=False), large)
