"""Intervals of the score posterior cover over many data sets, and cover because clipping is part of the model."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.score_models import BERNOULLI, EXPONENTIAL, measured, score_plan
from support.statistics import assert_close, assert_rates

from dpvi.posterior.score import ScoreModel, check_blocks, gauss_newton

NUM_SETS = 400


def standardised(scores, example, num_records, num_blocks, seed):
    """(z − mean) / sd over data sets at z from the prior, and the mean sd."""
    random = np.random.default_rng(seed)
    errors, widths = [], []
    for number in range(NUM_SETS):  # each with simulations of its own, or all would share one error
        z = example.draw_z(random)
        records = example.draw_records(random, z, num_records)
        blocks = measured(scores, example, records, num_blocks, random, seed=number)
        found = gauss_newton(scores, blocks, start=blocks.query[-1], seed=number)
        assert found.converged
        widths.append(np.sqrt(found.covariance[0, 0]))
        errors.append((z - found.mean[0]) / widths[-1])
    return np.array(errors), np.mean(widths)


def assert_calibrated(errors):
    """Standard normal as far as 95 % and 50 % intervals and the mean square go."""
    assert_rates(np.sum(np.abs(errors) < 1.96), len(errors), 0.95)
    assert_rates(np.sum(np.abs(errors) < 0.6745), len(errors), 0.5)
    assert_close(np.mean(errors**2), 1.0, np.sqrt(2 / len(errors)))


@pytest.mark.parametrize(
    ("example", "clip_norm", "width"),
    [(BERNOULLI, 1.0, 0.039), (EXPONENTIAL, 5.0, 0.034)],
    ids=["bernoulli", "exponential"],
)
def test_intervals_cover_under_the_noise_of_a_small_budget(example, clip_norm, width):
    scores = ScoreModel(example.model, score_plan(5000, clip_norm=clip_norm), num_simulated=4000)
    errors, sd = standardised(scores, example, 5000, num_blocks=4, seed=3)
    assert_calibrated(errors)
    np.testing.assert_allclose(sd, width, rtol=0.05)
    for wrong in (0.8, 1.25):
        with pytest.raises(AssertionError):
            assert_calibrated(errors / wrong)


def test_clipping_is_part_of_the_model():
    """C = 0.5 clips most scores of exponential records; a likelihood that ignores it is badly wrong."""
    plan = score_plan(1000, num_steps=1000, noise_multiplier=10.0, clip_norm=0.5)
    honest = ScoreModel(EXPONENTIAL.model, plan)
    (release,) = plan.releases
    noise_multiplier = plan.noise_scale / 1e6
    unclipped = dataclasses.replace(release, clip_norm=1e6, noise_multiplier=noise_multiplier)
    naive = ScoreModel(EXPONENTIAL.model, dataclasses.replace(plan, releases=(unclipped,)))
    random = np.random.default_rng(4)
    errors = {"honest": [], "naive": []}
    for _ in range(200):
        z = EXPONENTIAL.draw_z(random)
        blocks = measured(honest, EXPONENTIAL, EXPONENTIAL.draw_records(random, z, 1000), 2, random)
        for name, scores in (("honest", honest), ("naive", naive)):
            found = gauss_newton(scores, blocks, start=blocks.query[-1])
            errors[name].append((z - found.mean[0]) / np.sqrt(found.covariance[0, 0]))
    assert_calibrated(np.array(errors["honest"]))
    with pytest.raises(AssertionError):
        assert_calibrated(np.array(errors["naive"]))


def test_the_check_rejects_a_right_model_at_its_level():
    scores = ScoreModel(BERNOULLI.model, score_plan(5000))
    random = np.random.default_rng(6)
    p_values = []
    for _ in range(NUM_SETS):
        z = BERNOULLI.draw_z(random)
        blocks = measured(scores, BERNOULLI, BERNOULLI.draw_records(random, z, 5000), 4, random)
        found = gauss_newton(scores, blocks, start=blocks.query[-1])
        p_values.append(check_blocks(scores, blocks, found.mean).p_value)
    assert_rates([np.sum(np.array(p_values) < level) for level in (0.1, 0.5)], NUM_SETS, [0.1, 0.5])


def test_the_check_sees_records_the_model_cannot_produce():
    """Log-normal waiting times: clipped scores at the prior's centre and near the fit disagree about the rate."""
    scores = ScoreModel(EXPONENTIAL.model, score_plan(5000, noise_multiplier=30.0), num_simulated=4000)
    random = np.random.default_rng(7)
    records = np.exp(1.5 * random.normal(size=5000))
    blocks = measured(scores, EXPONENTIAL, records, 4, random)
    found = gauss_newton(scores, blocks, start=blocks.query[-1])
    with pytest.warns(UserWarning, match="do not fit one set of parameters"):
        result = check_blocks(scores, blocks, found.mean, warn=True)
    assert result.p_value < 1e-3
    impossible = blocks._replace(mean_noisy_sum=np.full_like(blocks.mean_noisy_sum, 5000.0))  # more than κNC
    assert check_blocks(scores, impossible, found.mean).reach_p_value < 1e-6
