from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dpvi
from dpvi.privacy.gaussian import gaussian_signal
from experiments.misfit import tables
from experiments.misfit.__main__ import main
from experiments.misfit.methods import METHODS, Outcome
from experiments.misfit.problems import Problem, kinds, make_problem
from experiments.misfit.reference import Reference, limit, mean_shift, oracles, reference
from experiments.misfit.report import figure, honest, honest_cells, summary, table
from experiments.misfit.scores import facts_of, row_of, run_of
from experiments.misfit.settings import EPSILONS, SIZES

SIMULATED = [name for name, kind in kinds().items() if not kind.table]
TABLES = [name for name, kind in kinds().items() if kind.table]


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem("linear_t3", 1, 600)


@pytest.fixture(scope="module")
def found(problem: Problem) -> Reference:
    return reference(problem)


def exact_outcome(problem: Problem, found: Reference, off: float = 0.5, sd: float = 1.0) -> Outcome:
    """An answer that is ``off`` privacy deviations away."""
    return Outcome(found.mode + off * sd * found.sd, np.hypot(1, sd) * found.sd, sd * found.sd, "", 1.0, 2.0)


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_problems_keep_to_what_they_declare(name: str):
    made = make_problem(name, 3, 400)
    check_declared(made)
    assert made.num_records == 400
    np.testing.assert_array_equal(made.data[0], make_problem(name, 3, 400).data[0])
    assert not np.array_equal(made.data[1], make_problem(name, 4, 400).data[1])


@pytest.mark.parametrize("name", TABLES)
def test_tables_keep_to_what_they_declare(name: str):
    try:
        made = make_problem(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    check_declared(made)
    assert make_problem(name, 1, 500).num_records == 500


def check_declared(made: Problem) -> None:
    x, y = made.data
    assert x.dtype == np.float32
    assert np.all(np.isfinite(x))
    assert np.all(np.isfinite(y))
    assert made.delta < 1 / made.num_records
    at = 0
    for column in made.columns:
        part = x[:, at : at + column.width]
        at += column.width
        if isinstance(column, dpvi.Numeric):
            assert part.min() >= column.lower - 1e-6
            assert part.max() <= column.upper + 1e-6
        elif isinstance(column, dpvi.Levels):
            assert np.isin(part, column.values).all()
        elif isinstance(column, dpvi.OneHot):
            assert np.isin(part.sum(axis=1), (0, 1) if column.reference else (1,)).all()
        else:
            assert np.all(part == column.value)
    assert at == x.shape[1] == made.dimension - len(made.scales)
    assert {*made.slopes} & {*made.scales} == set()


@pytest.mark.parametrize("name", ["linear_t3", "logistic_right", "poisson_right"])
def test_models_pass_the_check_with_z_in_the_order_of_the_names(name: str):
    made = make_problem(name, 0, 50)
    ready = dpvi.check(made.model, made.data)
    assert ready.dimension == made.dimension
    z = np.arange(made.dimension, dtype=np.float32) / 10
    values = ready.constrain(z)
    np.testing.assert_allclose(values["w"], z[: values["w"].shape[0]], rtol=1e-6)
    if made.scales:
        np.testing.assert_allclose(np.log(values["sigma"]), z[-1], rtol=1e-5)


def test_the_answer_without_privacy_is_that_of_least_squares(problem: Problem, found: Reference):
    x, y = (part.astype(np.float64) for part in problem.data)
    sigma = np.exp(found.mode[-1])
    ridge = np.linalg.solve(x.T @ x + sigma**2 / 4 * np.eye(x.shape[1]), x.T @ y)
    np.testing.assert_allclose(found.mode[:-1], ridge, atol=1e-6)
    # half the score of log σ: residuals, the prior of σ and the Jacobian of its logarithm
    np.testing.assert_allclose(((y - x @ ridge) ** 2).sum() / sigma**2 - len(y) - sigma**2 + 1, 0, atol=1e-4)
    np.testing.assert_allclose(found.scores.sum(axis=0)[:-1], found.mode[:-1] / 4, atol=1e-4)
    assert np.sqrt(found.sandwich[-1, -1]) > 1.3 * found.sd[-1]  # heavy tails
    # of six weights, each takes half a degree of freedom from log σ; the prior's share is small
    assert mean_shift(problem, found)[-1] == pytest.approx(7 / np.sqrt(2 * len(y)), rel=0.1)


def test_the_oracle_is_the_limit_where_nothing_is_lost():
    made = make_problem("pair_0", 0, 2000)
    found = reference(made)
    assert 0.8 < found.mode[0] < 1.2
    best = oracles(made, found, EPSILONS)
    widths = [best[epsilon].widths(found).mean() for epsilon in EPSILONS]
    assert np.all(np.diff(widths) < 0)
    assert all(width >= limit(made, epsilon) for width, epsilon in zip(widths, EPSILONS, strict=True))
    assert widths[-1] < 1.1
    assert best[3.0].clip_norm > best[0.1].clip_norm


def some_row(problem: Problem, found: Reference, epsilon: float, off: float, message: str = "") -> dict:
    best = oracles(problem, found, (epsilon,))[epsilon]
    outcome = exact_outcome(problem, found, off)._replace(message=message)
    runs = [run_of(problem, found, best, np.zeros(7), seed, outcome) for seed in range(3)]
    facts = facts_of(problem, epsilon, gaussian_signal(epsilon, problem.delta))
    return {"problem": problem.name, "epsilon": epsilon, "method": "default", **row_of(facts, runs)}


def test_rows_tell_honest_cells_from_others(problem: Problem, found: Reference):
    good, bad = some_row(problem, found, 1.0, 0.5), some_row(problem, found, 0.3, 3.0, "Look out.")
    assert (good["inside_privacy"], bad["inside_privacy"], bad["inside_full"]) == (1.0, 0.0, 0.0)
    assert (good["rms_z"], bad["rms_z"]) == (pytest.approx(0.5, rel=1e-4), pytest.approx(3.0, rel=1e-4))
    assert good["width_median"] == pytest.approx(np.sqrt(2), rel=1e-4)
    assert (honest(good), honest(bad)) == (True, False)
    text = "\n".join(summary([good, bad]))
    assert "50% of 2 cells are honest" in text
    assert "mostly do not warn: 0" in text
    assert "mostly do not warn: 1 (linear_t3 at ε = 0.3)" in "\n".join(summary([good, bad | {"warned": 0.0}]))


def test_a_method_without_a_privacy_part_and_a_run_that_diverged(problem: Problem, found: Reference):
    best = oracles(problem, found, (1.0,))[1.0]
    plain = exact_outcome(problem, found)._replace(sd_privacy=None)
    lost = plain._replace(mean=np.full(problem.dimension, np.nan))
    runs = [run_of(problem, found, best, np.zeros(7), seed, outcome) for seed, outcome in enumerate((plain, lost))]
    np.testing.assert_allclose(runs[0]["privacy"], 1.0, rtol=1e-5)
    json.dumps(runs, allow_nan=False)
    row = row_of(facts_of(problem, 1.0, 0.3), runs)
    assert (row["failed"], row["inside_privacy"]) == (1, 0.5)
    both = row_of(facts_of(problem, 1.0, 0.3), runs[1:]) | {"problem": "linear_t3", "epsilon": 1.0, "method": "before"}
    assert "1 (1 failed)" in table({"cells": [both], "settings": SIZES["full"].to_dict()})


@pytest.mark.parametrize("same", [False, True])
def test_the_default_fits_all_seeds_of_a_group_at_once(monkeypatch: pytest.MonkeyPatch, problem: Problem, same: bool):
    called: dict[str, Any] = {}

    def fit_many(model: object, data: tuple[np.ndarray, ...], plan: object, **options: Any) -> list[Any]:
        called.update(options, shapes=[part.shape for part in data])
        return [SimpleNamespace(posterior=lambda method, seed=seed: posterior(seed)) for seed in options["seeds"]]

    def posterior(seed: int) -> Any:
        if seed != 6:  # the same warning from the same line, twice
            warnings.warn("Wider than usual.", UserWarning, stacklevel=1)
        warnings.warn("Not about intervals.", DeprecationWarning, stacklevel=1)
        one = np.eye(problem.dimension)
        return SimpleNamespace(
            distribution=SimpleNamespace(mean=seed * np.diag(one), covariance=5 * one, privacy_covariance=4 * one)
        )

    monkeypatch.setattr(dpvi, "fit_many", fit_many)
    problems = [problem] * 3 if same else [make_problem("linear_t3", seed, 600) for seed in (5, 6, 7)]
    found = list(METHODS["default"](SIZES["full"], problems, 1.0, [5, 6, 7]))
    assert (called["seeds"], called["same_data"]) == ([5, 6, 7], same)
    assert called["shapes"] == ([(600, 6), (600,)] if same else [(3, 600, 6), (3, 600)])
    assert [outcome.message for outcome in found] == ["Wider than usual.", "", "Wider than usual."]
    np.testing.assert_allclose([outcome.mean[0] for outcome in found], [5, 6, 7])
    np.testing.assert_allclose(found[0].sd_total, np.sqrt(5))
    np.testing.assert_allclose(found[0].sd_privacy, 2)


def test_the_study_has_other_seeds_than_those_that_settings_were_chosen_on():
    assert all(settings.first_seed > 9 for settings in SIZES.values())


def test_honest_cells_are_counted_by_budget_for_slopes_and_for_all_parameters(problem: Problem, found: Reference):
    good, bad = some_row(problem, found, 1.0, 0.5), some_row(problem, found, 0.3, 3.0)
    scale = some_row(problem, found, 3.0, 0.5) | {"rms_z": 2.0}  # log σ alone is wrong
    few = bad | {"method": "before", "runs": 2}
    beside = some_row(problem, found, 10.0, 3.0)  # not an ε of the study
    text = honest_cells([few, bad, good, scale, beside])
    assert "| before | 0.3 | 1 | 2 | 0 | 0 | 0 and 0 of 1 |" in text
    assert "| default | 3 | 1 | 3 | 0 | 1 | – |" in text
    assert "| default | all | 3 | 3 | 1 | 2 | – |" in text
    assert not any("| 10 |" in line for line in text)


def test_the_picture_has_before_and_after(problem: Problem, found: Reference, tmp_path: Path):
    pytest.importorskip("matplotlib")
    good = some_row(problem, found, 1.0, 0.5)
    lost = {"problem": "pair_0", "epsilon": 0.3, "method": "before", "inside_slopes": 0.0, "warned": 1.0, "limit": 1.1}
    figure({"cells": [good]}, tmp_path / "after.png")
    figure({"cells": [good, good | {"method": "before"}, lost]}, tmp_path / "both.png")
    assert (tmp_path / "after.png").stat().st_size < (tmp_path / "both.png").stat().st_size


def test_a_killed_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    called: list[int] = []

    def method(
        settings: object, problems: list[Problem], epsilon: float, seeds: list[int], fails: bool = False
    ) -> Iterator[Outcome]:
        for problem, seed in zip(problems, seeds, strict=True):
            called.append(seed)
            if fails and seed == 1011:
                raise KeyboardInterrupt
            yield exact_outcome(problem, reference(problem))

    monkeypatch.setitem(METHODS, "before", method)
    monkeypatch.delenv("DPVI_DATA", raising=False)
    monkeypatch.setenv("DPVI_CACHE", str(tmp_path / "cache"))
    tables._rand.cache_clear()
    words = ["--size", "quick", "--methods", "before", "--epsilons", "1", "--output", str(tmp_path)]
    main([*words, "--problems", "pair_70", "--seeds", "1"])
    main([*words, "--problems", "pair_70", "rand_poisson", "--seeds", "2"])  # the table is not there, and is skipped
    assert called == [1000, 1001]
    monkeypatch.setitem(METHODS, "before", partial(method, fails=True))
    with pytest.raises(KeyboardInterrupt):  # in the second group
        main([*words, "--problems", "pair_70", "--seeds", "12"])
    monkeypatch.setitem(METHODS, "before", method)
    main([*words, "--problems", "pair_70", "--seeds", "12"])
    assert called == [*range(1000, 1012), 1011]
    content = json.loads((tmp_path / "results.json").read_text())
    assert [(row["problem"], row["runs"]) for row in content["cells"]] == [("pair_70", 12)]
    assert (tmp_path / "table.md").read_text() == table(content)
    assert (tmp_path / "inside.png").exists()
