"""NA-DPVI's step size: the paper's numbers, and the paper's steps in our conventions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from support.small_models import exact_plan, location_model, private_plan

import dpvi
from dpvi.families import FullRank, MeanField
from dpvi.run.optimizers import learning_rates, na_dpvi_sgd


@pytest.mark.parametrize(
    ("clip_norm", "dimension", "lambda_c", "published"),
    [(2.0, 1, 1.0, 1.389e-5), (2**0.5, 2, 1.0, 1.389e-5), (260.0, 12, 1.0, 3.08e-8), (11.0, 57, 57**0.5, 2.53e-6)],
    ids=["Beta-Bernoulli", "Dirichlet-Categorical", "linear regression", "Adult"],
)
def test_published_step_sizes(clip_norm, dimension, lambda_c, published):
    """The paper's λ is ours without the sampling rate, because it steps along the noisy sum undivided."""
    plan = private_plan(10_000, sampling_rate=0.1, noise_multiplier=360.0, clip_norm=clip_norm)
    rates = learning_rates(plan, MeanField(), dimension, lambda_c=lambda_c)
    np.testing.assert_allclose(rates / 0.1, np.full(2 * dimension, published), rtol=2e-3)


def test_a_run_takes_the_papers_steps():
    """φ_{t+1} = φ_t − λ_heur β g̃_t, with g̃ at batch scale as the trace holds it."""
    beta, num_steps = (1.0, 1.0, 50.0, 50.0), 20
    plan = private_plan(num_steps, sampling_rate=0.3, noise_multiplier=4.0, clip_norm=3.0)
    result = dpvi.fit(
        location_model(),
        np.random.default_rng(0).normal(size=(30, 2)),
        plan,
        estimator=dpvi.Preconditioned(beta=beta),
        optimizer=na_dpvi_sgd(plan, MeanField(), 2, beta=beta, lambda_c=2.0),
        seed=1,
        progress=False,
    )
    heuristic = 2**0.5 * 2.0 / (4.0 * 3.0 * np.sqrt(num_steps * 4))
    path = np.concatenate([result.trace.iterates, result.trace.final[None]]).astype(np.float64)
    steps = np.diff(path, axis=0)
    expected = -heuristic * np.array(beta) * result.trace.blocks.gradient  # one step per block here
    assert result.trace.block_length == 1
    np.testing.assert_allclose(steps, expected, rtol=1e-3, atol=1e-5)


def test_rates_scale_with_beta_and_lambda_c_by_parameter():
    plan, family = private_plan(100), FullRank()
    size = family.num_parameters(3)
    beta, lambda_c = np.arange(1.0, size + 1), np.linspace(0.5, 2.0, size)
    plain = learning_rates(plan, family, 3)
    np.testing.assert_allclose(learning_rates(plan, family, 3, beta=beta, lambda_c=lambda_c), plain * beta * lambda_c)
    optimizer = na_dpvi_sgd(plan, family, 3, beta=beta)
    updates, _ = optimizer.update(jnp.ones(size), optimizer.init(jnp.zeros(size)))
    np.testing.assert_allclose(updates, -plain * beta, rtol=1e-6)
    assert updates.dtype == jnp.float32


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beta": [1.0, 2.0, 3.0]}, "beta must be one number or one per variational parameter, 4"),
        ({"beta": 0.0}, "beta must hold finite positive numbers"),
        ({"lambda_c": -1.0}, "lambda_c must hold finite positive numbers"),
        ({"lambda_c": np.nan}, "lambda_c must hold finite positive numbers"),
        ({"plan": exact_plan(10)}, "this plan adds none"),
        ({"dimension": 0}, "dimension must be finite and greater than 0"),
    ],
    ids=str,
)
def test_bad_settings_are_refused_by_a_sentence(options, sentence):
    settings = {"plan": private_plan(10), "family": MeanField(), "dimension": 2} | options
    with pytest.raises(ValueError, match=sentence):
        na_dpvi_sgd(settings.pop("plan"), settings.pop("family"), settings.pop("dimension"), **settings)
