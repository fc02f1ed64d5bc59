from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.special import expit

from dpvi.posterior import Gaussian
from experiments.adult_calibration.__main__ import main
from experiments.adult_calibration.methods import METHODS, RUNS, Answer, nonprivate
from experiments.adult_calibration.plans import load_plans, make_plans, save_plans
from experiments.adult_calibration.problem import Problem, laplace_posterior, make_problem, simulated_adult
from experiments.adult_calibration.report import summary, to_markdown
from experiments.adult_calibration.scores import Scores, log_loss, noise_floor, predict, score
from experiments.adult_calibration.settings import PUBLISHED, PUBLISHED_NOISE_MULTIPLIERS, QUICK, Settings
from experiments.adult_calibration.study import NO_PRIVACY, Results, open_results, run_study

SMALL = replace(QUICK, simulated_records=(1200, 900), num_steps=60, num_components=50, num_predictive_draws=300)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem(SMALL)


def some_scores(error: float) -> Scores:
    return Scores(error, 0.02, 0.4, 0.9, 1.5, (0.2, 0.8), (0.1, 0.9), (5, 5))


def empty(settings: Settings = SMALL) -> Results:
    return Results(settings.to_dict(), {}, {}, {"mean": 0.01, "std": 0.003, "upper": 0.016})


def test_the_simulated_table_takes_the_real_encoding(problem: Problem):
    assert problem.features.shape == (1200, 57)
    assert problem.test_features.shape == (900, 57)
    assert 0.1 < problem.labels.mean() < 0.9
    assert simulated_adult(5, 3).train["age"].tolist() == simulated_adult(5, 3).train["age"].tolist()


def test_mode_and_covariance_without_privacy(problem: Problem):
    x, y = problem.features.astype(np.float64), problem.labels
    mode, factor = laplace_posterior(problem.features, problem.labels)
    probability = expit(x @ mode)
    np.testing.assert_allclose(x.T @ (y - probability) - mode, 0, atol=1e-6)
    precision = (x.T * (probability * (1 - probability))) @ x + np.eye(57)
    np.testing.assert_allclose(factor @ factor.T @ precision, np.eye(57), atol=1e-8)


def test_predictions_integrate_over_draws_and_plug_in_does_not():
    # σ of a N(0, 4²) logit shifted by 2 is closer to ½ than σ(2): the two ways must not agree
    rng = np.random.default_rng(5)
    draws = 2 + 4 * rng.normal(size=(20_000, 1))
    feature = np.ones((1, 1), np.float32)
    integrated = predict(Answer(draws), feature)[0]
    values = expit(draws[:, 0])
    assert integrated == pytest.approx(values.mean(), abs=1e-6)
    plugged = predict(Answer(draws, plug_in=np.array([2.0])), feature)[0]
    assert plugged == pytest.approx(expit(2.0), abs=1e-6)
    assert plugged - integrated > 10 * values.std() / np.sqrt(len(values))


def test_the_ceiling_beats_what_knows_nothing(problem: Problem):
    ceiling = nonprivate(SMALL, problem.nonprivate, jax.random.key(0))
    ignorant = Answer(np.zeros((300, 57)))
    good, bad = score(problem, ceiling), score(problem, ignorant)
    assert good.log_loss < bad.log_loss == pytest.approx(np.log(2), abs=1e-6)
    assert good.binned_calibration_rmse < bad.binned_calibration_rmse
    assert good.containment == 1.0
    assert bad.containment == 0.0
    assert sum(good.num_records) == 900


def test_the_ceiling_draws_have_the_right_covariance(problem: Problem):
    settings = replace(SMALL, num_predictive_draws=20_000)
    draws = nonprivate(settings, problem.nonprivate, jax.random.key(1)).draws
    expected = problem.nonprivate.standard_deviations
    # relative standard error of a standard deviation from 20,000 draws: 0.005
    np.testing.assert_allclose(draws.std(axis=0), expected, rtol=5 * 0.005)
    diagonal = np.abs(np.diag(problem.nonprivate.scale))  # the factor's diagonal alone would be the wrong spread
    assert np.any(np.abs(diagonal / expected - 1) > 5 * 0.005)


def test_a_diverged_run_counts_as_failed(problem: Problem):
    failed = score(problem, Answer(np.full((10, 57), np.nan)))
    assert np.isnan(failed.calibration_rmse)
    assert summary([some_scores(0.1), failed], "calibration_rmse")[::2] == (0.1, 1)
    results = empty()
    results.cells["naive", 1.0] = [some_scores(0.1), failed]
    assert "| 1 (1 failed) |" in to_markdown(results)


def test_log_loss_is_finite_at_wrong_certainty():
    assert log_loss(np.array([1.0]), np.array([0])) == pytest.approx(-np.log(1e-7), rel=1e-6)
    assert log_loss(np.array([0.25]), np.array([1])) == pytest.approx(np.log(4))


def test_noise_floor_is_what_right_probabilities_show_and_wrong_ones_exceed_it(problem: Problem):
    rng = np.random.default_rng(6)
    big = problem._replace(test_features=rng.normal(size=(4000, 57)).astype(np.float32) / 7)
    answer = Answer(3 * rng.normal(size=(1, 57)))
    floor = noise_floor(big, answer, 60)
    assert floor.mean < floor.upper < 0.08
    truth = predict(answer, big.test_features)
    labelled = big._replace(test_labels=(rng.random(4000) < truth).astype(np.int32))
    assert score(labelled, answer).calibration_rmse < floor.mean + 4 * floor.std
    overconfident = Answer(2 * answer.draws)
    assert score(labelled, overconfident).calibration_rmse > floor.mean + 4 * floor.std


def test_published_noise_keeps_the_published_budget(accounted: None):
    plans = make_plans(Settings(), ["preconditioned", "nonprivate"], [0.3, 1.0])
    assert list(plans) == ["preconditioned"]
    for epsilon, plan in plans["preconditioned"].items():
        assert plan.noise_multiplier == PUBLISHED_NOISE_MULTIPLIERS[epsilon]
        assert 0.9 * epsilon < plan.epsilon <= epsilon
        assert (plan.clip_norm, plan.num_steps, plan.sampling_rate, plan.delta) == (11.0, 10_000, 0.1, 1e-5)
    with pytest.raises(ValueError, match="use --noise calibrated"):
        make_plans(Settings(), ["aligned"], [0.5])


def test_plans_round_trip_and_are_refused_for_another_study(tmp_path: Path):
    path = tmp_path / "plans.json"
    plans = make_plans(SMALL, ["preconditioned", "aligned"], [1.0])
    save_plans(plans, path)
    assert load_plans(path, SMALL, ["preconditioned", "aligned", "nonprivate"], [1.0]) == plans
    with pytest.raises(ValueError, match="no plan of run 'aligned' for epsilon"):
        load_plans(path, SMALL, ["aligned"], [1.0, 0.3])
    with pytest.raises(ValueError, match="the study has"):
        load_plans(path, replace(SMALL, num_steps=61), ["aligned"], [1.0])


def test_every_method_names_a_run_and_every_published_row_a_method():
    assert {method.run for method in METHODS.values()} == set(RUNS)
    assert set(PUBLISHED) <= set(METHODS)


def test_a_noise_aware_run_has_the_published_start_and_step(problem: Problem):
    plan = make_plans(SMALL, ["preconditioned"], [1.0])["preconditioned"][1.0]
    (result,) = RUNS["preconditioned"].fit(SMALL, problem, plan, [984])
    iterates, sums = result.trace.iterates, result.trace.noisy_sums
    np.testing.assert_allclose(iterates[0], [0.0] * 57 + [-6.0] * 57, rtol=1e-6)
    rate = np.sqrt(2 * 57) / (plan.noise_multiplier * 11 * np.sqrt(SMALL.num_steps * 114))
    # at z ≈ 0 the prior pulls by less than 0.01, beside noise of hundreds
    np.testing.assert_allclose(iterates[1, :57], rate * sums[0, :57], atol=0.02 * rate)
    assert not np.allclose(iterates[1, :57], rate * sums[0, :57] / SMALL.sampling_rate, atol=0.02 * rate)
    assert result.estimator["beta"][::57] == [1.0, 550.0]
    answer = METHODS["naive"].answer(SMALL, result, jax.random.key(2))
    np.testing.assert_array_equal(answer.plug_in, result.trace.final[:57])


def test_results_go_on_where_they_stopped(problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fitted: list[list[int]] = []

    def fit(settings: Settings, problem: Problem, plan: object, seeds: list[int]) -> list[Gaussian]:
        fitted.append(list(seeds))
        return [problem.nonprivate] * len(seeds)

    monkeypatch.setitem(RUNS, "preconditioned", replace(RUNS["preconditioned"], fit=fit))
    for name in ("naive", "averaged"):
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], answer=nonprivate))
    plans = make_plans(SMALL, ["preconditioned"], [1.0])
    path, common = tmp_path / "results.json", (SMALL, problem, plans)
    results = run_study(*common, ["naive"], [1.0], 2, open_results(path, SMALL))
    results.save(path)
    assert fitted == [[984], [985]]
    again = open_results(path, SMALL)
    assert again.to_dict() == results.to_dict()
    run_study(*common, ["naive", "averaged"], [1.0], 3, again, lanes=2)
    assert fitted[2:] == [[984, 985], [986]]  # the second method lacks the first repeats
    assert [len(again.cells[name, 1.0]) for name in ("naive", "averaged")] == [3, 3]
    assert again.cells["naive", 1.0][:2] == results.cells["naive", 1.0]
    run_study(*common, ["naive", "averaged"], [1.0], 3, again)
    assert len(fitted) == 4
    with pytest.raises(ValueError, match=r"other settings \(num_steps\)"):
        open_results(path, replace(SMALL, num_steps=61))


def test_the_table_shows_the_papers_number_beside_ours_on_adult_only():
    for settings, paper in ((Settings(), "0.061 ± 0.031"), (SMALL, "–")):
        results = empty(settings)
        results.cells["na_dpvi_nuts", 0.1] = [some_scores(0.05), some_scores(0.07)]
        results.cells["nonprivate", NO_PRIVACY] = [some_scores(0.01)]
        table = to_markdown(results)
        assert f"| 0.1 | NA-DPVI (NUTS) | 0.0600 ± 0.0141 | {paper} |" in table
        assert "| ∞ | without privacy (Laplace) | 0.0100 | – |" in table
        assert ("simulated" in table) == (paper == "–")


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_the_quick_command_runs_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("experiments.adult_calibration.__main__.QUICK", SMALL)
    monkeypatch.delenv("DPVI_DATA", raising=False)
    plans, output = tmp_path / "plans.json", tmp_path / "out"
    methods = ["--methods", "naive", "averaged", "na_dpvi_laplace", "na_dpvi_exact", "dpvim", "nonprivate"]
    assert main(["--quick", *methods, "--write-plans", str(plans)]) == 0
    assert main(["--quick", *methods, "--repeats", "1", "--plans", str(plans), "--output", str(output)]) == 0
    content = json.loads((output / "results.json").read_text())
    assert [cell["method"] for cell in content["cells"]] == [*methods[1:-1], "nonprivate"]
    assert (output / "calibration_epsilon_1.png").stat().st_size > 1000
    for cell in content["cells"]:
        assert len(cell["repeats"]) == 1
        assert np.isfinite(cell["repeats"][0]["log_loss"])
    assert (output / "table.md").read_text() == to_markdown(Results.from_dict(content))
