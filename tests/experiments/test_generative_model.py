"""The mixture with a Poisson regression: its oracle, its cohort, its scores, and a command small enough for a test."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpvi.privacy.accounting import plan_epsilon
from dpvi.privacy.together import own_releases
from dpvi.table import Design, Schema
from experiments.generative_model import __main__ as command
from experiments.generative_model import cells as cells_module
from experiments.generative_model import cohort, coverage_report, downstream, study
from experiments.generative_model import coverage as coverage_study
from experiments.generative_model.along import along
from experiments.generative_model.cells import Cell, cells_of, downstream_cells
from experiments.generative_model.census import income_schema
from experiments.generative_model.findings import CLAIMS, coverage, difference, findings, settings_of
from experiments.generative_model.near_starts import near_starts
from experiments.generative_model.optimum import Optimum, poisson_optimum
from experiments.generative_model.scores import errors
from experiments.generative_model.settings import NATURAL_VARIANTS, SIZES, Settings
from studies.mpae import mpae


@pytest.mark.usefixtures("x64")
def test_the_optimum_is_where_the_elbo_is_flat_and_that_of_the_laplace_approximation_is_not():
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.uniform(size=(80, 3)) < 0.3, np.ones(80)]).astype(float)
    y = rng.poisson(np.exp(x @ np.array([0.5, -0.4, 0.2, -1.0]))).astype(float)
    optimum = poisson_optimum(x, y)

    def elbo(location, scale):
        rates = jnp.exp(x @ location + 0.5 * x**2 @ scale**2)
        return y @ (x @ location) - rates.sum() - 0.5 * jnp.sum(location**2 + scale**2) + jnp.sum(jnp.log(scale))

    slopes = jax.grad(elbo, (0, 1))(*map(jnp.asarray, optimum))
    np.testing.assert_allclose(np.concatenate(slopes), 0, atol=1e-6)
    mode = np.zeros(4)
    for _ in range(30):
        rates = np.exp(x @ mode)
        curvature = (x.T * rates) @ x + np.eye(4)
        mode = mode + np.linalg.solve(curvature, x.T @ (y - rates) - mode)
    slopes = jax.grad(elbo, (0, 1))(jnp.asarray(mode), jnp.asarray(1 / np.sqrt(np.diagonal(curvature))))
    assert np.abs(np.concatenate(slopes)).max() > 0.1


def test_the_cohort_has_the_law_it_declares():
    num_records = 60_000
    records = cohort.simulate(np.random.default_rng(1), num_records)
    matrix = Design(cohort.SCHEMA, tuple(cohort.FEATURES)).matrix(records)
    design = np.column_stack([np.ones(num_records), matrix])
    truth = cohort.true_coefficients()
    assert design.shape[1] == len(truth)
    # at the true rates the score of every coefficient has mean 0 and variance Σ x² rate
    rates = np.exp(design @ truth)
    z = design.T @ (records[cohort.RESPONSE] - rates) / np.sqrt((design**2).T @ rates)
    assert np.abs(z).max() < 4
    wrong = np.exp(design @ (truth + 0.1 * (np.arange(len(truth)) == 1)))
    z = design.T @ (records[cohort.RESPONSE] - wrong) / np.sqrt((design**2).T @ wrong)
    assert np.abs(z).max() > 4
    assert 0.05 < records[cohort.RESPONSE].mean() < 0.2
    # features depend on each other through the social class, which a mixture has to find
    deprived, unschooled = records["deprivation"] == 4, records["education"] == 4
    independent = deprived.mean() * unschooled.mean()
    together = (deprived & unschooled).mean()
    assert together - independent > 10 * np.sqrt(independent / num_records)


def test_declared_levels_of_the_census_keep_every_value_and_none_is_read_from_records():
    schema = income_schema()
    table = {
        name: np.array([column.levels[0], column.levels[-1]])
        for name, column in schema.columns.items()
        if name != "high_income"
    }
    encoded = schema.encode(
        table | {"education": np.array(["Children", "a new degree"]), "high_income": np.array([0, 1])}
    )
    assert encoded["education"].tolist() == [1, 7]
    assert encoded["race"].tolist() == [0, 3]


def test_errors_are_of_locations_and_of_standard_deviations():
    optimum = Optimum(np.array([1.0, 2.0]), np.array([0.1, 0.2]))
    sigma = np.array([0.5, 0.4])
    s = np.log(np.expm1(sigma))
    start = np.array([[0.0, 0.0, *np.log(np.expm1([1.0, 1.0]))]])
    end = np.array([[0.5, 2.5, *s]])
    found = errors(end, start, optimum)
    np.testing.assert_allclose(found["location_mpae"], (0.5 + 0.25) / 2)
    np.testing.assert_allclose(found["scale_mpae"], (0.4 / 0.9 + 0.2 / 0.8) / 2)
    assert abs(found["scale_mpae"][0] - mpae(s, start[0, 2:], np.log(np.expm1(optimum.scale)))) > 0.01
    np.testing.assert_allclose(found["location_error"], (0.5 + 0.5) / 2)
    np.testing.assert_allclose(found["scale_error"], (0.4 + 0.2) / 2)


def test_curves_are_read_at_parts_of_the_run_and_the_variant_ahead_is_named():
    def row(variant, curve):
        cell = Cell("cohort", variant, 2.0, 1.0, 0.1, 8)._asdict()
        return cell | {"table": "cohort", "steps": [0, 2, 4, 8], "curve": {"scale_mpae": curve}}

    rows = [row("vanilla", [1.0, 1.0, 1.0, 0.9]), row("preconditioned", [1.0, 0.6, 0.5, 0.4])]
    assert along({"cells": rows}) == []
    line = along({"cells": [*rows, row("aligned", [1.0, 0.5, 0.4, 0.4])]})[-2]
    assert line.endswith("| 1 → 1 → 1 → 0.9 | 0.8 → 0.6 → 0.5 → 0.4 | 0.75 → 0.5 → 0.4 → 0.4 | aligned |")


def test_a_scale_that_starts_at_its_optimum_is_named_with_its_share_of_the_error():
    cell = Cell("cohort", "aligned", 2.0, 1.0, 0.1, 4000)._asdict() | {"table": "cohort"}
    far = {"start_distance": [0.05, 0.05], "error": [0.01, 0.02]}
    assert near_starts({"cells": [cell | {"scales": far}, cell]}) == []
    near = {"start_distance": [0.05, 0.05, 0.001], "error": [0.01, 0.02, 0.02]}
    line = near_starts({"cells": [cell | {"scales": near}]})[-2]
    # ratios 0.2, 0.4 and 20
    assert "| 1 of 3 | 97 % | 0.300 | 0.400 | 0.0167 |" in line


def test_parts_share_their_cells_and_together_hold_the_published_grid():
    settings = SIZES["full"]
    robustness = cells_of(["robustness"], settings)
    assert len(robustness) == 3 * 5
    assert {cell.clip_norm for cell in robustness if cell.variant == "preconditioned"} == {4.0}
    both = cells_of(["robustness", "epochs"], settings)
    assert len(both) == 15 + 3 * 5  # 100,000 steps from σ_q = 1 belong to both
    natural = cells_of(["natural"], settings)
    wanted = {(variant, c) for variant in NATURAL_VARIANTS for c in (0.01, 0.02, 0.1)}
    assert wanted < {(cell.variant, cell.clip_norm) for cell in natural}
    assert [cell.epsilon for cell in downstream_cells(["downstream"], settings)] == [1, 1, 2, 2, 4, 4, 10, 10]
    assert downstream_cells(["census"], settings) == []


def row(variant, clip_norm, values, num_runs=2, **other):
    cell = Cell("cohort", variant, clip_norm, 1.0, 1.0, 100)._replace(**other)
    return cell._asdict() | {"scale_mpae": values, "location_mpae": values, "num_finite": 2, "num_runs": num_runs}


def test_a_finding_is_compared_within_one_setting_and_in_its_standard_errors():
    content = {
        "cells": [
            row("aligned", 2.0, [0.1, 0.2]),
            row("vanilla", 2.0, [0.5, 0.7]),
            row("vanilla", 2.0, [0.0, 0.0], initial_scale=0.1),
            row("natural", 0.1, [0.05, 0.05]),
        ],
        "downstream": [],
    }
    (seen,) = settings_of(CLAIMS[0], content)
    np.testing.assert_allclose((seen.gap, seen.standard_errors), (0.45, 9.0))  # differences 0.4 and 0.5
    lines = findings(content)
    assert lines[2].endswith("(9.0 s.e.) | – |")
    gap, error = difference(row("aligned", 2.0, [0.1, 0.2]), row("vanilla", 2.0, [0.5, 0.7], num_runs=3), "scale_mpae")
    np.testing.assert_allclose((gap, error), (0.45, np.hypot(0.05, 0.1)))
    assert "| – | cohort" in next(line for line in lines if "beats natural in MPAE of means" in line)


def test_a_repeat_without_a_pooled_estimate_covers_nothing():
    full = {"original": {"covered": [True, True]}, "stationary": {"covered": [True, True]}}
    failed = {"original": {"covered": [True, True]}, "stationary": {"failed": "a level does not vary"}}
    share, error = coverage([full, failed, full, failed], "stationary")
    np.testing.assert_allclose((share, error), (0.5, np.std([1, 0, 1, 0], ddof=1) / 2))


def test_settings_refuse_what_gives_no_spread():
    with pytest.raises(ValueError, match="at least 2"):
        Settings(num_starts=1, runs_per_start=1)
    with pytest.raises(ValueError, match="multiple of repeats_at_once"):
        Settings(num_repeats=5, repeats_at_once=2)


def test_a_cohort_without_an_answer_covers_nothing_and_the_verdict_follows_the_numbers():
    truth = cohort.true_coefficients()

    def answer(shift, half_width):
        return {"estimate": (truth + shift).tolist(), "half_width": [half_width] * len(truth), "fell_back": 0}

    good = {method: answer(0.1, 0.2) for method in ("records", *coverage_study.METHODS)} | {"seconds": 1.0}
    rows = [good | {"last": answer(0.1, 0.05)}, good | {"score": {"failed": "no answer"}}, good, good]
    share = coverage_report.outcome(rows, "score").covered.mean(axis=1)
    assert share.tolist() == [1, 0, 1, 1]
    stored = {"settings": asdict(coverage_study.coverage_settings("quick")), "cohorts": rows}
    text = "\n".join(coverage_report.coverage_section({"coverage": stored, "machine": "a machine"}))
    assert "NOT reached (75.0 %)" in text
    assert "do not cover: seen (75.0 %)" in text
    stored["cohorts"] = [good | {"score": answer(0.1, 0.2)}] * 19 + [good | {"score": answer(0.3, 0.2)}]
    text = "\n".join(coverage_report.coverage_section({"coverage": stored, "machine": "a machine"}))
    assert ": reached (95.0 %)" in text
    assert "NOT seen (100.0 %)" in text


def test_both_runs_of_the_coverage_study_share_one_budget():
    settings = coverage_study.coverage_settings("quick")
    for measuring in (True, False):
        plans = coverage_study.plans(settings, measuring=measuring)
        releases = [release for plan in plans.values() for release in own_releases(plan)]
        assert plan_epsilon(releases, 1 / settings.num_records) <= settings.epsilon * (1 + 1e-6)
        assert len(releases) == 2 + measuring


def test_the_coverage_part_runs_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    features = {name: cohort.FEATURES[name] for name in ("sex", "deprivation")}
    monkeypatch.setattr(cohort, "FEATURES", features)
    kept = (*features, cohort.RESPONSE)
    monkeypatch.setattr(cohort, "SCHEMA", Schema({name: cohort.SCHEMA[name] for name in kept}))
    monkeypatch.setattr(coverage_study, "plans", coverage_study.plans.__wrapped__)  # plans of all features are kept
    arguments = ["--quick", "--output", str(tmp_path), "--part", "coverage"]
    command.main(arguments)
    content = json.loads((tmp_path / "results.json").read_text())
    rows = content["coverage"]["cohorts"]
    assert [each["cohort"] for each in rows] == [0, 1]
    widths = {name: np.mean([each[name]["half_width"] for each in rows]) for name in ("records", "score")}
    assert widths["score"] > widths["records"]  # privacy costs something, and the interval says so
    monkeypatch.setattr(coverage_study, "of_group", lambda *_: pytest.fail("a cohort that was there ran again"))
    command.main(arguments)
    assert "Coverage of intervals" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "coverage.png").exists()
    monkeypatch.setattr(
        command, "coverage_settings", lambda _: replace(coverage_study.coverage_settings("quick"), epsilon=2.0)
    )
    with pytest.raises(ValueError, match="other settings"):
        command.main(arguments)


def test_the_command_writes_its_files_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    quick = replace(SIZES["quick"], num_steps=20, downstream_steps=20, num_components=2, num_datasets=2)
    monkeypatch.setitem(SIZES, "quick", quick)
    monkeypatch.setattr(cells_module, "CLIP_NORMS", {"aligned": 2.0})
    features = {name: cohort.FEATURES[name] for name in ("sex", "deprivation")}
    monkeypatch.setattr(cohort, "FEATURES", features)
    kept = (*features, cohort.RESPONSE)
    monkeypatch.setattr(cohort, "SCHEMA", Schema({name: cohort.SCHEMA[name] for name in kept}))
    arguments = ["--quick", "--output", str(tmp_path), "--part"]
    command.main([*arguments, "robustness", "downstream"])
    content = json.loads((tmp_path / "results.json").read_text())
    assert [cell["initial_scale"] for cell in content["cells"]] == [0.1, 1.0]
    assert [each["repeat"] for each in content["downstream"]] == [0, 1]
    assert set(content["downstream"][0]) >= {"original", "last", "average", "stationary"}

    def refuse(*_):
        raise AssertionError("a cell that was there ran again")

    for module in (study, downstream):
        monkeypatch.setattr(module, "fit_side_by_side", refuse)
    command.main([*arguments, "robustness", "downstream"])
    assert json.loads((tmp_path / "results.json").read_text()) == content
    (tmp_path / "results.json").write_text(json.dumps(content | {"downstream": []}))
    with pytest.raises(AssertionError, match="ran again"):
        command.main([*arguments, "downstream"])
    assert {"table.md", "robustness.png", "trade_off.png", "downstream.png"} <= {p.name for p in tmp_path.iterdir()}
    monkeypatch.setitem(SIZES, "quick", replace(quick, num_steps=21))
    with pytest.raises(ValueError, match="other settings"):
        command.main([*arguments, "robustness"])
