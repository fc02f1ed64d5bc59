"""The step with ghost clipping: chosen by size or on request, and the same step either way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.small_models import private_plan

import dpvi
from dpvi.data.sampling import poisson_sampler
from dpvi.families import MeanField
from dpvi.gradients import Aligned, Vanilla
from dpvi.gradients.ghost import uses_ghost_clipping
from dpvi.models.functions import from_functions
from dpvi.train.step import Algorithm, clipped_sum

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


def noisy_sums(estimator):
    plan = private_plan(12, sampling_rate=0.3, clip_norm=0.8)
    fitted = dpvi.fit(
        network_model(), RECORDS, plan, estimator=estimator, optimizer=optax.sgd(0.01), seed=4, progress=False
    )
    return np.asarray(fitted.trace.noisy_sums)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("estimator", [GhostAligned(num_draws=2), GhostVanilla()], ids=lambda e: type(e).__name__)
def test_a_fit_releases_the_same_either_way(estimator):
    formed, ghost = (noisy_sums(replace(estimator, ghost_clipping=asked)) for asked in (False, True))
    np.testing.assert_allclose(ghost, formed, rtol=0, atol=1e-10)
    assert (
        np.max(np.abs(noisy_sums(replace(estimator, num_draws=estimator.num_draws + 1))[:, :10] - formed[:, :10])) > 0.1
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("asked", [False, True])
def test_microbatches_change_nothing(asked):
    family, model = MeanField(), network_model()
    algorithm = Algorithm(
        model,
        family,
        GhostAligned(ghost_clipping=asked),
        optax.sgd(0.01),
        private_plan(1, sampling_rate=0.3, clip_norm=0.8),
        poisson_sampler(NUM_RECORDS, 0.3),
    )
    xi = family.initial(jnp.asarray(GENERATOR.standard_normal(model.dimension)))
    eta = jnp.zeros((1, model.dimension))
    queries = jax.vmap(family.transform, (None, 0))(xi, eta)
    records, included = jax.tree.map(jnp.asarray, RECORDS), jnp.arange(NUM_RECORDS) % 5 != 0

    @jax.jit
    def total(records):
        sizes = (None, 7, 20)
        sums = [clipped_sum(replace(algorithm, microbatch_size=size), xi, eta, queries, True) for size in sizes]
        return [each(records, included).value for each in sums]

    whole, *parts = total(records)
    assert np.linalg.norm(whole) > 1
    for part in parts:
        np.testing.assert_allclose(part, whole, rtol=1e-12, atol=1e-13)


def test_which_path_is_taken():
    large, small = 700_000, 100
    assert not uses_ghost_clipping(Aligned(), large, 128)  # it does not say of which term it is the gradient
    assert uses_ghost_clipping(GhostAligned(), large, 128)
    assert not uses_ghost_clipping(GhostAligned(), small, 300)
    assert uses_ghost_clipping(GhostAligned(ghost_clipping=True), small, 300)
    assert not uses_ghost_clipping(GhostAligned(ghost_clipping=False), large, 128)
