"""The DPVIm experiments: their oracles, their scores, and commands small enough for a test."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from support.statistics import assert_close

import dpvi
from experiments.adult_logistic import __main__ as adult_command
from experiments.adult_logistic.optimum import Optimum, mean_field_optimum
from experiments.adult_logistic.problem import Problem, logistic_regression
from experiments.adult_logistic.releases import (
    published_shifts,
    release_function,
    rule_clip_norm,
    variational_parameters,
)
from experiments.adult_logistic.report import findings, relaxation, why_behind
from experiments.adult_logistic.scores import noise_check
from experiments.adult_logistic.settings import AT_START, SIZES, VARIANTS
from experiments.adult_logistic.study import load_facts, load_plans, make_plans, save_plans, with_clip_norm
from experiments.full_rank import __main__ as full_rank_command
from experiments.full_rank import settings as full_rank_settings
from experiments.full_rank import study as full_rank_study
from experiments.full_rank.problem import covariance_factor, make_problem, nonprivate_score, predictive_score
from experiments.full_rank.report import difference
from experiments.full_rank.study import fit, make_plan, score_of
from experiments.gradient_scales.__main__ import main as gradient_scales
from experiments.gradient_scales.study import part_norms


def small_problem(num_records=300, dimension=3) -> Problem:
    rng = np.random.default_rng(5)
    features = rng.normal(size=(num_records, dimension)).astype(np.float32)
    labels = (rng.uniform(size=num_records) < 1 / (1 + np.exp(-2 * features[:, 0]))).astype(np.int32)
    return Problem("simulated records", features, labels, mean_field_optimum(features, labels))


@pytest.mark.usefixtures("x64")
def test_the_optimum_is_where_the_elbo_is_flat_and_that_of_the_laplace_approximation_is_not():
    problem = small_problem(60)
    x, y = jnp.asarray(problem.features, jnp.float64), jnp.asarray(problem.labels, jnp.float64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    eta, weights = jnp.asarray(nodes), jnp.asarray(weights / weights.sum())

    def elbo(location, scale):
        logits = (x @ location)[:, None] + jnp.sqrt(x**2 @ scale**2)[:, None] * eta
        likelihood = jnp.sum(y * (x @ location)) - jnp.sum(jax.nn.softplus(logits) @ weights)
        return likelihood - 0.5 * jnp.sum(location**2 + scale**2) + jnp.sum(jnp.log(scale))

    slopes = jax.grad(elbo, (0, 1))(*map(jnp.asarray, problem.optimum))
    np.testing.assert_allclose(np.concatenate(slopes), 0, atol=1e-6)
    mode = jnp.zeros(3)
    for _ in range(30):
        p = jax.nn.sigmoid(x @ mode)
        curvature = (x.T * (p * (1 - p))) @ x + jnp.eye(3)
        mode = mode + jnp.linalg.solve(curvature, x.T @ (y - p) - mode)
    slopes = jax.grad(elbo, (0, 1))(mode, 1 / jnp.sqrt(jnp.diagonal(curvature)))
    assert np.abs(np.concatenate(slopes)).max() > 0.1


def test_releases_are_scaled_versions_of_one_gradient_and_with_prior_and_entropy_they_sum_to_that_of_the_elbo():
    problem = small_problem()
    point, eta = Optimum(np.array([0.5, -0.2, 0.1]), np.array([0.1, 0.3, 1.0])), np.array([0.7, -1.2, 0.4])
    xi, family = variational_parameters(point), dpvi.MeanField()
    released = {name: release_function(estimator, problem, point)(eta) for name, estimator in VARIANTS.items()}
    derivatives, fisher = np.asarray(family.scale_derivatives(xi)), np.asarray(family.inverse_fisher(xi))
    vanilla = released["vanilla"]
    weights = {"preconditioned": np.concatenate([np.ones(3), 1 / derivatives]), "natural": fisher}
    for name, factor in weights.items():
        np.testing.assert_allclose(released[name], factor * vanilla, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(released["aligned"], vanilla[:, :3], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(released["aligned_natural"], fisher[:3] * vanilla[:, :3], rtol=1e-5, atol=1e-7)

    def elbo(xi):
        z = family.transform(xi, jnp.asarray(eta, xi.dtype))
        logits = problem.features @ z
        likelihood = jnp.sum(jnp.where(problem.labels == 1, -jax.nn.softplus(-logits), -jax.nn.softplus(logits)))
        return likelihood - 0.5 * jnp.sum(z**2) + family.entropy(xi)

    full = np.asarray(jax.grad(elbo)(xi))
    for name, factor in {**weights, "vanilla": np.ones(6)}.items():
        (shift,) = published_shifts(VARIANTS[name], problem, point, eta[None])
        np.testing.assert_allclose((released[name] + shift).sum(axis=0), factor * full, rtol=1e-4, atol=1e-3)
        assert np.abs(released[name].sum(axis=0) - factor * full).max() > 0.1
    assert published_shifts(dpvi.Aligned(), problem, point, eta[None]).shape == (1, 3)


def test_the_rule_leaves_a_fortieth_of_the_releases_above_the_clip_norm():
    problem = small_problem()
    clip_norm = rule_clip_norm(dpvi.Aligned(), problem, seed=3, num_draws=4)
    draws = np.random.default_rng(3).normal(size=(4, 3))
    released = release_function(dpvi.Aligned(), problem, problem.optimum)
    above = np.mean([np.linalg.norm(released(eta), axis=1) > clip_norm for eta in draws])
    np.testing.assert_allclose(above, 0.025, atol=1 / 1200)


def test_the_noise_check_knows_what_a_perfect_trace_would_show():
    rng, deviations = np.random.default_rng(0), np.linspace(0.5, 2.0, 3000)
    final = deviations * rng.normal(size=(5, 3000))
    converged = np.ones((5, 3000), bool)

    def check(factor):
        found = noise_check(final, np.tile((factor * deviations) ** 2, (5, 1)), converged)
        return found, (factor * deviations - final.std(axis=0, ddof=1)) ** 2

    found, errors = check(1.0)
    assert_close(found["mse"][0], found["floor"], errors.std() / np.sqrt(3000))
    assert found["baseline"] > 5 * found["mse"][0]
    np.testing.assert_allclose(found["ratio"], 1.0, atol=0.05)
    wrong, errors = check(1.5)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_close(wrong["mse"][0], wrong["floor"], errors.std() / np.sqrt(3000))
    assert noise_check(final, np.ones((5, 3000)), ~converged)["mse"] == []


def test_findings_name_the_settings_and_say_where_the_gap_is_within_its_error():
    def cell(variant, epsilon, location, scale):
        distances = {"location_distance": location, "scale_distance": scale}
        distances |= {"location_mpae": location, "scale_mpae": scale}
        runs = {"num_finite": 2, "num_runs": 2}
        return {"clipping": "published", "variant": variant, "epsilon": epsilon, "noise": {}} | distances | runs

    cells = [
        cell("vanilla", 1.0, [3.0, 3.1], [5.0, 5.1]),
        cell("aligned", 1.0, [3.0, 3.2], [2.0, 2.1]),
        cell("vanilla", 4.0, [3.0, 3.1], [2.0, 2.2]),
        cell("aligned", 4.0, [3.0, 3.2], [2.0, 2.3]),
    ]
    lines = findings({"cells": cells})
    (line,) = [line for line in lines if "aligned beats vanilla in scales" in line]
    assert line == "| aligned beats vanilla in scales | ε = 1, published C | ε = 4, published C within 2 s.e. |"


def test_where_aligned_natural_is_behind_the_cut_at_the_start_is_named():
    def content(natural):
        rows = [("aligned", [3.0, 3.1]), ("aligned_natural", natural)]
        cells = [
            {"clipping": "simulated", "variant": name, "epsilon": 4.0, "noise": {}, "location_distance": distances}
            for name, distances in rows
        ]
        norms = {"simulated": {"aligned": 2.0, "aligned_natural": 0.02}, AT_START: {"aligned": 4.0} | {rows[1][0]: 2.0}}
        return {"cells": cells, "clip_norms": norms}

    assert why_behind(content([2.0, 2.1])) == []
    assert why_behind(content([4.0, 4.1]) | {"clip_norms": {}}) == []
    (sentence, _) = why_behind(content([4.0, 4.1]))
    assert "ε = 4." in sentence
    assert "100 times its C, against 2.0 times for aligned" in sentence


def test_facts_of_another_study_are_taken_for_the_same_data_alone(tmp_path):
    path, facts = tmp_path / "results.json", {"data": "Adult", "clip_norms": {"published": {"aligned": 3.0}}}
    path.write_text(json.dumps(facts | {"cells": []}))
    assert load_facts(path, "Adult") == facts
    with pytest.raises(ValueError, match="simulated records"):
        load_facts(path, "simulated records")


def test_relaxation_is_noise_over_curvature_and_rate():
    """Adam divides by the noise σC/κ, so a slope of h(m − m*) moves m by rate · h(m − m*) κ/(σC) a step."""
    cell = {"clipping": "published", "variant": "aligned", "epsilon": 1.0, "clip_norm": 3.0, "noise_multiplier": 20.0}
    settings = {"num_steps": 1000, "sampling_rate": 0.01, "learning_rate": 1e-3}
    cells = [cell | {"noise": {"ratio": 0.3}}]
    content = {"settings": settings, "cells": cells, "optimum_variances": [0.001, 0.01, 0.1]}
    (sentence, _) = relaxation(content)
    assert relaxation(content | {"cells": [cell | {"noise": {"ratio": 1.0}}]}) == []
    assert "6,000, 60,000 and 600,000" in sentence
    assert "of 1,000" in sentence
    assert relaxation({"settings": settings, "cells": content["cells"]}) == []


def test_published_noise_is_that_of_replacing_a_record_and_stored_plans_are_checked(tmp_path):
    settings = replace(SIZES["quick"], num_steps=1000, epsilons=(1.0,))
    published = replace(settings, noise="published")
    exact, substitute = make_plans(settings, 2000)[1.0], make_plans(published, 2000)[1.0]
    np.testing.assert_allclose(substitute.noise_multiplier / exact.noise_multiplier, 2.0, rtol=0.02)
    assert with_clip_norm(exact, 3.0).noise_scale == 3 * exact.noise_scale
    save_plans({1.0: exact}, tmp_path / "plans.json")
    assert load_plans(tmp_path / "plans.json", settings) == {1.0: exact}
    with pytest.raises(ValueError, match="substitute"):
        load_plans(tmp_path / "plans.json", published)
    with pytest.raises(ValueError, match="no plan for epsilon 2"):
        load_plans(tmp_path / "plans.json", replace(settings, epsilons=(2.0,)))


def test_covariates_have_the_stated_density_and_the_printed_algorithm_gives_no_correlation_matrix():
    factor = covariance_factor(np.random.default_rng(1), 100, 0.2)
    below = factor[np.tril_indices(100, -1)]
    assert np.count_nonzero(below) == round(0.2 * 4950)
    assert np.count_nonzero(np.triu(factor, 1)) == 0
    rng, matrix = np.random.default_rng(1), np.eye(100)
    rows, columns = np.tril_indices(100, -1)
    matrix[rows, columns] = rng.choice([-1, 1], 4950) * rng.beta(8, 10, 4950) * (rng.uniform(size=4950) < 0.2)
    assert np.linalg.eigvalsh(matrix + matrix.T - np.eye(100)).min() < 0


def test_the_predictive_score_is_a_mean_of_normal_densities_and_the_ceiling_is_close_to_the_truth():
    problem = make_problem(4, 0.8, 2000, seed=2)
    mean, root = np.arange(5.0) / 5, np.tril(np.full((5, 5), 0.1))
    x, y = problem.test_features.astype(float), problem.test_response
    spread = np.sqrt(np.array([row @ root @ root.T @ row for row in x]) + 0.7**2)
    expected = scipy.stats.norm.logpdf(y, x @ mean, spread).mean()
    np.testing.assert_allclose(predictive_score(problem, mean, root @ root.T, 0.7), expected, rtol=1e-10)
    weights, *_ = np.linalg.lstsq(problem.features.astype(float), problem.response.astype(float))
    densities = scipy.stats.norm.logpdf(y, x @ weights, 1.0)
    assert_close(nonprivate_score(problem), densities.mean(), 5 / 2000)  # five weights fitted to 2,000 records
    assert nonprivate_score(problem) > predictive_score(problem, weights, np.zeros((5, 5)), 1.3)


def test_scores_read_the_weights_and_the_noise_where_the_model_has_them():
    settings = replace(full_rank_settings.SIZES["quick"], num_steps=4)
    problem = make_problem(4, 0.8, 300, seed=2)
    result = fit(problem, make_plan(settings), "low_rank", settings, [0])[0]
    assert [(site.name, site.offset) for site in result.sites] == [("weights", 0), ("sd", 5)]
    draws = result.posterior("last").sample(4000, jax.random.key(1))
    weights, sd = np.asarray(draws["weights"]), np.asarray(draws["sd"])
    plugged = predictive_score(problem, weights.mean(axis=0), np.cov(weights.T), float(np.median(sd)))
    np.testing.assert_allclose(score_of(result, problem), plugged, rtol=0.02)


def test_a_difference_needs_two_runs_of_both_and_has_the_error_of_independent_means():
    def row(method, scores):
        return {"dimension": 4, "density": 0.2, "clip_norm": 2.0, "method": method, "scores": scores}

    content = {"cells": [row("vanilla", [-2.0, -2.2]), row("aligned", [-1.5, -1.5])]}
    np.testing.assert_allclose(difference(content, (4, 0.2, 2.0)), (0.6, 0.1))
    content["cells"][1]["scores"] = [-1.5]
    assert difference(content, (4, 0.2, 2.0)) is None


def test_part_norms_separate_locations_and_scales():
    norms = part_norms(np.array([[3.0, 4.0, 0.0, 12.0]]), 2)
    np.testing.assert_allclose(norms[:, 0], [5, 12, 13])
    assert np.isnan(part_norms(np.array([[3.0, 4.0]]), 2)[1, 0])


def check_files(folder, names):
    assert {path.name for path in folder.iterdir()} == {"results.json", "table.md", *names}
    lines = (folder / "table.md").read_text().splitlines()
    tables = [line.count("|") for line in lines if line.startswith("|")]
    assert tables
    return json.loads((folder / "results.json").read_text())


def test_the_adult_command_writes_its_files_and_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(SIZES, "quick", replace(SIZES["quick"], num_steps=40))
    facts = {"data": "simulated records", "clip_norms": {"published": dict.fromkeys(VARIANTS, 2.0)}}
    monkeypatch.setattr(adult_command, "facts_of", lambda problem: facts)
    arguments = ["--quick", "--clipping", "published", "--output", str(tmp_path), "--variants"]
    adult_command.main([*arguments, "aligned"])
    first = check_files(tmp_path, {"distances_published.png", "noise_published.png"})
    adult_command.main([*arguments, "aligned", "natural"])
    both = json.loads((tmp_path / "results.json").read_text())
    assert [row["variant"] for row in both["cells"]] == ["aligned", "natural"]
    assert both["cells"][0] == first["cells"][0]
    assert len(both["cells"][0]["scale_distance"]) == 2
    assert capsys.readouterr().out.count("natural: ") == 1
    with pytest.raises(ValueError, match="other settings"):
        adult_command.main(["--quick", "--noise", "published", "--output", str(tmp_path)])


def test_the_full_rank_command_writes_its_files(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(
        full_rank_settings.SIZES, "quick", replace(full_rank_settings.SIZES["quick"], num_steps=20, num_records=200)
    )
    full_rank_command.main(["--quick", "--output", str(tmp_path)])
    content = check_files(tmp_path, {"predictive.png"})
    assert [row["method"] for row in content["cells"]] == ["vanilla", "aligned", "low_rank"]
    assert all(score < row["nonprivate_score"] for row in content["cells"] for score in row["scores"])
    joined = tmp_path / "joined"
    full_rank_command.main(["--quick", "--output", str(joined), "--join", str(tmp_path)])
    assert check_files(joined, {"predictive.png"}) == content


def test_a_killed_cell_goes_on_with_the_runs_it_has(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    quick = replace(full_rank_settings.SIZES["quick"], num_steps=20, num_records=200)
    monkeypatch.setitem(full_rank_settings.SIZES, "quick", quick)
    monkeypatch.setattr(full_rank_study, "KEPT_RUNS", 1)
    asked, kept = [], tmp_path / "kept"

    def killed(problem, plan, method, settings, runs, directory):
        asked.append(list(runs))
        if asked == [[0], [1]]:
            raise KeyboardInterrupt
        return fit(problem, plan, method, settings, runs, directory)

    monkeypatch.setattr(full_rank_study, "fit", killed)
    arguments = ["--quick", "--methods", "aligned", "--output", str(tmp_path / "results")]
    with pytest.raises(KeyboardInterrupt):
        full_rank_command.main([*arguments, "--keep-runs", str(kept)])
    [run] = kept.rglob("*.npz")
    written = run.stat().st_mtime_ns
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # look at what is there before it goes
    full_rank_command.main([*arguments, "--keep-runs", str(kept)])
    monkeypatch.undo()
    assert run.stat().st_mtime_ns == written, "the run that was there must not be written again"
    assert len(list(kept.rglob("*.npz"))) == 2
    [row] = json.loads((tmp_path / "results" / "results.json").read_text())["cells"]
    problem = make_problem(4, 0.8, 200, quick.data_seed)
    plan = with_clip_norm(make_plan(quick), row["clip_norm"])
    expected = [score_of(result, problem) for result in fit(problem, plan, "aligned", quick, [0, 1])]
    np.testing.assert_allclose(row["scores"], expected, rtol=1e-4)


def test_the_gradient_scales_command_sees_what_the_paper_sees(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("experiments.gradient_scales.__main__.make_problem", lambda *_: small_problem())
    gradient_scales(["--quick", "--output", str(tmp_path)])
    content = check_files(tmp_path, {"norms.png"})
    ratios = {row["variant"]: row["scales_over_locations"] for row in content["rows"]}
    assert ratios["vanilla"] < 0.2 < 0.5 < ratios["preconditioned"] < 2 < ratios["natural"]
    assert "not seen" not in (tmp_path / "table.md").read_text()


def test_the_model_is_the_one_whose_optimum_is_known():
    """Log joint of the NumPyro model: Bernoulli labels, standard normal weights."""
    problem = small_problem(20)
    model = dpvi.check(logistic_regression, problem.records)
    z = jnp.asarray([0.3, -0.2, 1.0])
    logits = np.asarray(problem.features @ np.asarray(z))
    terms = jax.vmap(model.log_likelihood, (None, 0))(z, problem.records)
    expected = scipy.stats.bernoulli.logpmf(problem.labels, 1 / (1 + np.exp(-logits)))
    np.testing.assert_allclose(terms, expected, rtol=1e-5)
    np.testing.assert_allclose(model.log_prior(z), scipy.stats.norm.logpdf(z).sum(), rtol=1e-5)
