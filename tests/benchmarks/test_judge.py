"""The judge of the peers against losses that can be written down."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from harness.judge import negative_elbo, predictive_log_loss, reference_losses
from harness.tasks import HIERARCHICAL, LAYERS, LOGISTIC, PIXELS, black_and_white, prior_precision, simulated

SMALL = replace(HIERARCHICAL, num_records=50, num_test=4_000)


def layers(**biases: float) -> dict[str, np.ndarray]:
    zeros = {f"{name} weights": np.zeros(size, np.float32) for name, size in LAYERS.items()}
    return zeros | {
        f"{name} bias": np.full(size[1], biases.get(name.replace(" ", "_"), 0.0), np.float32)
        for name, size in LAYERS.items()
    }


def test_a_network_of_zeros_codes_every_pixel_with_one_bit():
    images = np.random.default_rng(0).integers(0, 2, (20, PIXELS)).astype(np.float32)
    assert negative_elbo(images, layers()) == pytest.approx(PIXELS * math.log(2), rel=1e-6)


def test_bias_and_divergence_count():
    dark = np.zeros((20, PIXELS), np.float32)
    expected = PIXELS * math.log1p(math.exp(-2)) + 50 * 0.5 * 3.0**2
    found = negative_elbo(dark, layers(decoder_out=-2.0, encoder_location=3.0))
    assert found == pytest.approx(expected, rel=1e-5)


def test_predictions_average_probabilities_not_logits():
    data = simulated(SMALL)
    weights = data["true_weights"].reshape(1, -1)
    both = np.concatenate([weights, -weights])
    assert predictive_log_loss(SMALL, data, both) == pytest.approx(math.log(2), rel=1e-6)  # p and 1 - p
    assert predictive_log_loss(SMALL, data, weights) < 0.6


def test_groups_have_weights_of_their_own():
    data = simulated(SMALL)
    shuffled = np.roll(data["true_weights"], 1, axis=0)
    best = reference_losses(SMALL, data)["the weights that made the records"]
    assert predictive_log_loss(SMALL, data, shuffled) > best + 0.05


def test_true_weights_are_hard_to_beat():
    data = simulated(SMALL)
    random = np.random.default_rng(1)
    best = predictive_log_loss(SMALL, data, data["true_weights"])
    for _ in range(5):
        moved = data["true_weights"] + 0.3 * random.normal(size=data["true_weights"].shape)
        assert predictive_log_loss(SMALL, data, moved) > best


def test_the_marginal_prior_has_the_covariance_of_the_hierarchy():
    data = simulated(SMALL)
    random = np.random.default_rng(2)
    G = data["characteristics"]
    M = 4.0 * random.normal(size=(200_000, G.shape[1]))
    drawn = M @ G.T + random.normal(size=(200_000, len(G)))
    covariance = np.linalg.inv(prior_precision(SMALL, data).astype(np.float64))
    error = np.abs(np.cov(drawn.T) - covariance)
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert np.max(error / scale) < 6 * math.sqrt(2 / 200_000)
    assert np.array_equal(prior_precision(LOGISTIC, simulated(replace(LOGISTIC, num_records=2, num_test=2))), [[1.0]])


def test_pixels_are_drawn_with_their_grey_values():
    grey = np.full((400, 28, 28), 51, np.uint8)
    grey[:, 0], grey[:, 1] = 0, 255
    drawn = black_and_white(grey, grey[:1])["images"].reshape(grey.shape)
    assert drawn[:, 0].sum() == 0
    assert drawn[:, 1].all()
    rest = drawn[:, 2:]
    assert abs(rest.mean() - 0.2) < 5 * math.sqrt(0.2 * 0.8 / rest.size)
