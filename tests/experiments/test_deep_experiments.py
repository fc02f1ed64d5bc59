"""Hierarchical regression, the mixture and Abalone: scores, findings, and commands small enough for a test."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
import scipy.special

from experiments.abalone import __main__ as abalone_command
from experiments.abalone import study as abalone_study
from experiments.abalone.problem import accuracy, split
from experiments.gaussian_mixture import __main__ as mixture_command
from experiments.gaussian_mixture.problem import CENTRES, log_likelihood, make_problem, reference_scores
from experiments.hierarchical import __main__ as hierarchical_command
from experiments.hierarchical import problem as hierarchical
from experiments.hierarchical.report import findings
from experiments.hierarchical.settings import SIZES
from experiments.hierarchical.study import cells_of


def test_auc_is_the_share_of_ordered_pairs():
    random = np.random.default_rng(0)
    scores, labels = np.round(random.normal(size=60), 1), random.integers(0, 2, 60)  # rounded: ties count half
    pairs = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    assert hierarchical.auc(scores, labels) == pytest.approx(np.mean((pairs > 0) + 0.5 * (pairs == 0)))
    assert hierarchical.auc(-scores, labels) == pytest.approx(1 - hierarchical.auc(scores, labels))


def test_the_predictive_probability_is_that_of_draws_from_the_guide():
    problem = hierarchical.make_problem(40, 3)
    random = np.random.default_rng(1)
    location, log_scale = random.normal(size=(5, 3)), random.normal(-0.5, 0.3, size=(5, 3))
    parameters = {"M_location": location, "M_log_scale": log_scale}
    found = hierarchical.probabilities(parameters, problem.test, problem.characteristics)
    matrix = location + np.exp(log_scale) * random.normal(size=(20_000, 5, 3))
    weights = np.einsum("lk,sdk->sld", problem.characteristics, matrix)
    weights = weights + random.normal(size=weights.shape)  # w_l given M
    logits = np.einsum("nd,snd->sn", problem.test.features, weights[:, problem.test.groups])
    np.testing.assert_allclose(found, scipy.special.expit(logits).mean(axis=0), atol=0.03)  # of the approximation
    plugged = scipy.special.expit(np.einsum("nd,nd->n", problem.test.features,
                                            (problem.characteristics @ location.T)[problem.test.groups]))  # fmt: skip
    assert np.abs(found - plugged).max() > 0.1


def test_groups_matter_more_than_a_regression_without_them_can_see():
    problem = hierarchical.make_problem(1_000, 2022)
    truth = np.random.default_rng(2022)
    characteristics, matrix = truth.normal(size=(3, 3)), truth.normal(size=(5, 3))
    weights = characteristics @ matrix.T + truth.normal(size=(3, 5))
    logits = np.sum(problem.test.features * weights[problem.test.groups], axis=1)
    best = hierarchical.auc(logits, problem.test.labels)
    assert 0.5 < hierarchical.plain_logistic_auc(problem) < best - 0.1


def test_the_hierarchical_command_writes_its_findings_and_goes_on(tmp_path, capsys):
    folder = hierarchical_command.main(["--quick", "--output", str(tmp_path)])
    content = json.loads((folder / "results.json").read_text())
    assert len(content["cells"]) == len(cells_of(SIZES["quick"])) == 2
    assert "not run" in findings(content, "average")[1]
    assert (folder / "auc.png").stat().st_size > 1_000
    hierarchical_command.main(["--quick", "--output", str(tmp_path)])
    assert json.loads((folder / "results.json").read_text()) == content
    assert "ε ≥ 4 close" in capsys.readouterr().out
    with pytest.raises(ValueError, match="other settings"):
        hierarchical_command.main(["--size", "small", "--output", str(tmp_path)])


def test_the_log_likelihood_of_the_truth_beats_one_gaussian_and_a_misplaced_mixture():
    problem = make_problem(2_000, 400, 5)
    references = reference_scores(problem)
    assert references["truth"] > references["one Gaussian"] + 0.2
    draws = {"weights": np.full((3, 5), 0.2, np.float32), "scales": np.full((3, 5), 0.5**0.5, np.float32)}
    shifted = log_likelihood(draws | {"centres": np.float32(np.stack([CENTRES + 1.0] * 3))}, problem.test)
    exact = log_likelihood(draws | {"centres": np.float32(np.stack([CENTRES] * 3))}, problem.test)
    assert exact == pytest.approx(references["truth"], abs=1e-5)
    assert shifted < exact - 0.5


def test_the_mixture_command_prints_the_epsilon_that_is_spent(tmp_path):
    folder = mixture_command.main(["--quick", "--output", str(tmp_path)])
    cells = json.loads((folder / "results.json").read_text())["cells"]
    assert [cell["noise_multiplier"] for cell in cells] == [0.8, 0.0]
    assert cells[0]["epsilon"] == pytest.approx(2.38, abs=0.01)
    assert cells[1]["epsilon"] is None
    assert (folder / "log_likelihood.png").stat().st_size > 1_000


def test_the_abalone_command_scores_the_right_side(tmp_path, monkeypatch):
    random = np.random.default_rng(2)
    features = random.normal(size=(400, 8))
    labels = (random.uniform(size=400) < jax.nn.sigmoid(3 * features[:, 0])).astype(np.int32)
    problem = split(features, labels)
    assert problem.features.shape == (320, 8)
    first = np.eye(8)[0]
    assert accuracy(first, problem) > 0.75
    assert accuracy(-first, problem) == pytest.approx(1 - accuracy(first, problem))
    monkeypatch.setattr(abalone_study, "load", lambda: problem)
    folder = abalone_command.main(["--quick", "--output", str(tmp_path)])
    [cell] = json.loads((folder / "results.json").read_text())["cells"]
    assert np.mean(cell["average"]) > 0.6
    assert (folder / "accuracy.png").stat().st_size > 1_000
