"""The learning-rate study: its oracle, Theorem 2's inequality, and a study small enough for a test."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.statistics import assert_close

from experiments.learning_rate_sensitivity.__main__ import main
from experiments.learning_rate_sensitivity.problem import NUM_RECORDS, PRIOR, draw_data, optimum
from experiments.learning_rate_sensitivity.study import Settings, coverage
from experiments.learning_rate_sensitivity.theorem import trade_off


@pytest.mark.usefixtures("x64")
def test_the_optimum_and_its_curvature_are_those_of_the_negative_elbo():
    records = draw_data(3).records
    eta, weights = np.polynomial.hermite_e.hermegauss(40)
    best = optimum(records)
    for ones, phi, curvature in zip(records.sum(axis=1), best.phi, best.curvature, strict=True):

        def negative_elbo(phi, ones=float(ones)):
            scale = jax.nn.softplus(phi[1])
            log_normaliser = jnp.sum(jnp.asarray(weights) * jax.nn.softplus(phi[0] + scale * jnp.asarray(eta)))
            size = NUM_RECORDS + 2 * PRIOR
            return -(ones + PRIOR) * phi[0] + size * log_normaliser / weights.sum() - jnp.log(scale)

        np.testing.assert_allclose(jax.grad(negative_elbo)(jnp.asarray(phi)), 0, atol=1e-7)
        np.testing.assert_allclose(np.diagonal(jax.hessian(negative_elbo)(jnp.asarray(phi))), curvature, rtol=1e-6)


def noisy_line(random, num_steps, curvature, beta, noise_scale=3.0, sampling_rate=0.1):
    iterates = random.normal(1.0, [0.3, 0.02], (num_steps, 2))
    noise = noise_scale / beta * random.normal(size=iterates.shape)
    gradients = sampling_rate * curvature * (iterates - 1.0) + noise
    products = np.sum(gradients * (iterates - 1.0), axis=0)
    return trade_off(iterates, products, np.ones(2), sampling_rate, noise_scale, beta)


def test_the_spread_of_the_curvature_is_a_standard_deviation():
    """(A16): estimates scatter by sd[â], as a standard deviation and not as a variance."""
    random, curvature, beta = np.random.default_rng(0), np.array([50.0, 2000.0]), np.array([1.0, 20.0])
    found = [noisy_line(random, 200, curvature, beta) for _ in range(400)]
    scores = np.array([(t.estimate - curvature) / t.deviation for t in found])
    error = 1 / np.sqrt(2 * len(found))
    assert_close(np.sqrt(np.mean(scores**2, axis=0)), 1.0, error)
    as_variance = np.array([(t.estimate - curvature) / np.sqrt(t.deviation) for t in found])
    with pytest.raises(AssertionError, match="standard errors"):
        assert_close(np.sqrt(np.mean(as_variance**2, axis=0)), 1.0, error)


def test_theorem_two_holds_with_a_standard_deviation_in_all_units_and_with_a_variance_it_does_not():
    random = np.random.default_rng(1)
    found = noisy_line(random, 200, np.array([50.0, 2000.0]), np.array([1.0, 20.0]))
    for unit in (1e-3, 1.0, 1e3):
        np.testing.assert_allclose(found.ratio(1, unit), found.ratio(), rtol=1e-12)
    assert found.ratio() >= 1
    assert found.ratio(2, 1e3) < 1 < found.ratio(2, 1e-3)
    # equality: all iterates at one distance, all parameters alike
    corners = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    tight = trade_off(corners, np.ones(2), np.zeros(2), 0.1, 3.0, np.ones(2))
    np.testing.assert_allclose(tight.ratio(), 1.0, rtol=1e-12)


def test_coverage_counts_central_ranks():
    found = coverage(np.array([0.04, 0.06, 0.5, 0.94, 0.96]))
    assert found["share"] == 0.6
    np.testing.assert_allclose(found["standard_error"], np.sqrt(0.09 / 5))


def test_the_command_writes_numbers_table_and_figure(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    small = Settings(num_sets=3, num_steps=120, lambda_c=(1.0,))
    monkeypatch.setattr("experiments.learning_rate_sensitivity.__main__.QUICK", small)
    main(["--quick", "--output", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "table.md", "coverage.png"}
    (row,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert row["lambda_c"] == 1.0
    assert row["num_finite"] == 3
    assert row["theorem"]["violated_deviation"] == 0
    assert 0 <= row["coverage_parameter"]["share"] <= 1
    text = (tmp_path / "table.md").read_text()
    assert text.strip() == capsys.readouterr().out.strip()
    header, rule, cells = (line.count("|") for line in text.splitlines() if line.startswith("|"))
    assert header == rule == cells
