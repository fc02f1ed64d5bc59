"""Choosing a clip norm by simulation: the information is that of the posterior, and the choice follows the noise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.score_models import BERNOULLI, EXPONENTIAL, score_plan

from dpvi.declared.schedule import Schedule
from dpvi.posterior.score import Blocks, ScoreModel, choose_clip_norm, gauss_newton

CLIP_NORMS = np.geomspace(0.25, 16.0, 7)


def test_the_information_is_that_of_a_posterior_measured_at_the_truth():
    """With one prior draw, ½ log P of the choice equals the Gauss-Newton answer for releases at their mean."""
    plan = dataclasses.replace(score_plan(5000), schedule=Schedule(move_share=0.5, num_blocks=1))
    found = choose_clip_norm(BERNOULLI.model, plan, [0.3, 2.0], num_draws=400)
    for clip_norm, information in zip(found.clip_norms, found.information, strict=True):
        at = score_plan(5000, clip_norm=float(clip_norm))
        scores = ScoreModel(BERNOULLI.model, at)
        random = np.random.default_rng(1)
        values = []
        for z in np.array([BERNOULLI.draw_z(random) for _ in range(200)]):
            mean = _mean_release(scores, z)
            blocks = Blocks(np.array([[z]]), np.array([5000.0]), np.array([[mean]]))
            values.append(-0.5 * np.log(gauss_newton(scores, blocks, np.array([z])).covariance[0, 0]))
        # two sets of prior draws; information varies little between them
        error = np.std(values) * np.sqrt(1 / 200 + 1 / 400)
        assert information == pytest.approx(np.mean(values), abs=4 * error + 0.01)


def _mean_release(scores, z):
    values = np.clip(np.array([0.0, 1.0]) - 1 / (1 + np.exp(-z)), -scores.plan.clip_norm, scores.plan.clip_norm)
    share = 1 / (1 + np.exp(-z))
    return scores.plan.sampling_rate * 5000 * ((1 - share) * values[0] + share * values[1])


def test_more_noise_wants_more_clipping():
    loud, quiet = (
        choose_clip_norm(EXPONENTIAL.model, score_plan(5000, noise_multiplier=sigma), CLIP_NORMS).clip_norm
        for sigma in (307.5, 3.0)
    )
    assert loud < 3.0 < quiet


def test_tolerance_takes_the_largest_of_the_good_ones():
    plan = score_plan(5000)
    strict = choose_clip_norm(EXPONENTIAL.model, plan, CLIP_NORMS, tolerance=0.0)
    assert strict.clip_norm == CLIP_NORMS[np.argmax(strict.information)]
    generous = choose_clip_norm(EXPONENTIAL.model, plan, CLIP_NORMS, tolerance=100.0)
    assert generous.clip_norm == CLIP_NORMS[-1]


@pytest.mark.parametrize(
    ("changes", "arguments", "sentence"),
    [
        ({}, {"clip_norms": [-1.0]}, "positive numbers"),
        ({}, {"clip_norms": []}, "positive numbers"),
        ({"num_records": None}, {"clip_norms": [1.0]}, "num_records="),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(changes, arguments, sentence):
    plan = dataclasses.replace(score_plan(5000), **changes)
    with pytest.raises(ValueError, match=sentence):
        choose_clip_norm(BERNOULLI.model, plan, **arguments)
