"""The rivals: their limits without noise, what they spend, and a command small enough for a test."""

from __future__ import annotations

import json
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import dpvi
from dpvi.privacy.gaussian import gaussian_delta
from experiments.rivals import __main__ as command
from experiments.rivals import augmentation, newton, ours, report
from experiments.rivals.moments import adassp, noisy_moments
from experiments.rivals.others import binagg_charge, run_binagg
from experiments.rivals.problems import PROBLEMS, DataSet, Interval, data_set, nonprivate
from experiments.rivals.settings import REFERENCE, SETTINGS
from experiments.rivals.study import Options, cells_of, judged

NO_NOISE = 1e9  # signal


@pytest.mark.parametrize("name", ["cube", "wages"])
def test_without_noise_moments_are_least_squares_with_its_intervals(name):
    problem = PROBLEMS[name]
    scaled = problem.scaled(data_set(name, 0, 2_000))
    exact = problem.scaled(DataSet(*data_set(name, 0, 2_000)))
    wanted = np.linalg.lstsq(exact.x, exact.y, rcond=None)[0]
    found = noisy_moments(scaled, problem.response_bound, NO_NOISE, np.random.default_rng(0))
    np.testing.assert_allclose(found.estimate, wanted, rtol=1e-6)
    reference = nonprivate(problem, data_set(name, 0, 2_000))
    np.testing.assert_allclose(problem.raw(found).upper, reference.upper, rtol=1e-3)
    bootstrap = adassp(scaled, problem.response_bound, NO_NOISE, 1e-6, 4_000, np.random.default_rng(0))
    np.testing.assert_allclose(bootstrap.estimate, wanted, rtol=1e-6)
    ratio = (bootstrap.upper - bootstrap.lower) / (found.upper - found.lower)
    np.testing.assert_allclose(ratio, 1.0, atol=0.08)  # of 4,000 draws: four standard errors of a quantile range


def test_without_noise_newton_finds_the_mode():
    data = data_set("arcsine-1000", 0)  # no record is weighted down: ‖x‖² ≤ 2
    found = newton.noisy_newton(data, NO_NOISE, 10, np.random.default_rng(0))
    wanted = nonprivate(PROBLEMS["arcsine-1000"], data)
    for one, other in zip(found[:3], wanted[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)  # the prior is all that differs


def test_weights_of_newton_bound_scores_and_hessians():
    x = data_set("four-columns", 0).x
    weights = np.minimum(1, newton.RADIUS**2 / np.sum(x**2, axis=1))
    norms = np.linalg.norm(x, axis=1)
    assert np.max(weights * norms) <= newton.RADIUS * (1 + 1e-12)
    assert np.max(weights * norms**2) / 4 <= newton.RADIUS**2 / 4 * (1 + 1e-12)


def test_symmetric_noise_is_spherical_in_frobenius_norm():
    rng = np.random.default_rng(1)
    drawn = np.stack([newton.symmetric_noise(rng, 3, 2.0) for _ in range(20_000)])
    assert np.array_equal(drawn, np.swapaxes(drawn, 1, 2))
    error = 4 * 4.0 * math.sqrt(2 / 20_000)
    assert abs(drawn[:, 1, 1].var() - 4.0) < error
    assert abs(2 * drawn[:, 0, 1].var() - 4.0) < error  # not 8, what plain noise on the upper triangle would have


def test_statistics_of_the_oracle_are_an_isometry_within_their_sensitivity():
    data = data_set("oracle", 0)
    found = augmentation.statistics(data.x, data.y, 1.0)
    z = np.column_stack([data.x, np.clip(data.y, -1, 1)])
    np.testing.assert_allclose(np.sum(found**2, axis=1) + 1, np.sum(z**2, axis=1) ** 2)
    assert np.max(np.linalg.norm(found, axis=1)) <= augmentation.SENSITIVITY
    corner = augmentation.statistics(np.ones((1, 3)), np.ones(1), 1.0)
    assert math.isclose(float(np.linalg.norm(corner)), augmentation.SENSITIVITY)


def test_a_release_of_nothing_but_noise_leaves_the_oracle_with_the_prior():
    rng, chains = np.random.default_rng(2), 1_000
    released = np.zeros((chains, 9))
    found = augmentation.sample_posterior(released, 2, 4.0, 1e-9, 1.0, (3.0, 1.0), 60, rng)
    assert found.acceptance == pytest.approx(1.0)
    last = found.draws[:, -1]
    assert np.all(np.abs(last.mean(axis=0)) < 4 / math.sqrt(chains))
    assert np.all(np.abs(last.var(axis=0) - 1) < 4 * math.sqrt(2 / chains))


def test_the_oracle_learns_from_a_good_release():
    data = [data_set("oracle", seed) for seed in range(12)]
    x, y = np.stack([each.x for each in data]), np.stack([each.y for each in data])
    rng = np.random.default_rng(3)
    given = augmentation.release(x, y, 4.0, 3.0, rng)
    intervals = augmentation.sample_posterior(given, 100, 4.0, 3.0, 1.0, (3.0, 1.0), 1_500, rng).intervals()
    truth = np.stack([each.truth for each in data])
    estimate, lower, upper = (np.stack(part) for part in list(zip(*intervals, strict=True))[:3])
    z, of_the_prior = ((truth - centre) / (upper - lower) * 3.92 for centre in (estimate, 0.0))
    assert 0.6 < math.sqrt(np.mean(z**2)) < 1.5  # 36 of them: 1 ± 0.12
    assert math.sqrt(np.mean(of_the_prior**2)) > 3
    assert np.mean(upper - lower) < 0.8


def test_binagg_spends_what_its_charge_says_and_is_asked_for_raw_columns():
    shares = np.array([1, 3, 3, 3]) / math.sqrt(28)
    spent = math.sqrt(shares[0] ** 2 + shares[1] ** 2 + 3 * shares[2] ** 2 + shares[3] ** 2)
    assert math.isclose(binagg_charge(3), spent)
    assert binagg_charge(1) == 1

    class Package:
        @staticmethod
        def dp_linear_regression(x, y, x_bounds, y_bounds, mu):
            assert x.max() > 9
            assert (x_bounds, y_bounds, mu) == ([(0, 10)] * 3, (-30.0, 30.0), 0.5)
            estimate = np.arange(3.0)
            return type("Found", (), {"coefficients": estimate, "confidence_intervals": np.ones((3, 2)) * [-1, 1]})

    found = run_binagg(Package, PROBLEMS["cube"], data_set("cube", 0), 0.5, 0)
    np.testing.assert_array_equal(found.lower, -np.ones(3))


@pytest.mark.parametrize("name", list(SETTINGS))
def test_budgets_are_those_of_the_signal_that_rivals_run_at(name):
    setting = SETTINGS[name]
    assert math.isclose(gaussian_delta(setting.signal, setting.epsilon), setting.delta, rel_tol=1e-6)
    if name == "binagg-mu":
        assert math.isclose(setting.signal, 1.0, rel_tol=1e-9)


def test_what_is_judged():
    data = [DataSet(np.zeros((1, 3)), np.zeros(1), np.array([0.0, 1.0, 2.0]))]
    zero = np.zeros(3)
    found = Interval(np.array([0.5, 1, 2]), zero - 0.1, np.array([0.1, 0.9, 3.0]), zero + 0.1)
    row = judged(PROBLEMS["cube"], data, [Interval(zero, zero, zero)], [found])
    assert row["truth_inside"] == [pytest.approx(2 / 3, rel=1e-4)]
    assert row["truth_by_coefficient"] == [1, 0, 1]
    assert row["answer_inside"] == [1]
    assert row["answer_inside_privacy"] == [0]
    assert row["squared_error"] == [pytest.approx(0.25 / 3, rel=1e-4)]
    unknown = Interval(zero, zero * np.nan, zero * np.nan)
    assert "width" not in judged(PROBLEMS["cube"], data, [Interval(zero, zero, zero)], [unknown])


def test_columns_and_priors_are_declared_to_dpvi():
    columns = ours.columns_of(PROBLEMS["wages"])
    assert columns == [dpvi.Constant(), *[dpvi.Numeric(-1, 1)] * 2, *[dpvi.Levels((0, 1))] * 2]
    assert ours.columns_of(PROBLEMS["cube"]) == [dpvi.Numeric(0, 1)] * 3
    plan = ours.make_plan(PROBLEMS["cube"], SETTINGS["binagg-1"], "expert")
    assert plan.guarantee.epsilon <= 1.0 + 1e-9


def test_dpvi_fits_data_sets_side_by_side_and_reads_each_posterior_in_raw_columns(monkeypatch):
    problem, data = PROBLEMS["cube"], [data_set("cube", seed, 50) for seed in (3, 4)]
    setting, called = SETTINGS["binagg-mu"], {}

    def fit_many(model, data, plan, **options):
        called.update(options, shapes=[part.shape for part in data], plan=plan)
        return [SimpleNamespace(posterior=lambda seed=seed: fake_posterior(seed)) for seed in options["seeds"]]

    def fake_posterior(seed):
        warnings.warn("Contradiction.", UserWarning, stacklevel=1)
        names, mean = ["variance", "w[0]", "w[1]", "w[2]"], np.array([1.0, 10, 20, 30]) + 10 * seed
        summary = SimpleNamespace(names=names, mean=mean, lower=mean - 10, upper=mean + 20)
        law = SimpleNamespace(privacy_covariance=np.diag([1.0, 400, 900, 1600]))
        return SimpleNamespace(summary=lambda: summary, distribution=law)

    monkeypatch.setattr(dpvi, "fit_many", fit_many)
    plan = ours.make_plan(problem, setting, "default")
    found = ours.run_many(problem, data, plan, ours.model_of(problem), range(3, 5))
    assert (called["seeds"], called["shapes"]) == ([3, 4], [(2, 50, 3), (2, 50)])
    assert called["plan"].measuring is not None  # nobody chose rates, steps or clip norms
    np.testing.assert_allclose(found[1].estimate, [5, 6, 7])
    np.testing.assert_allclose(found[0].upper - found[0].lower, 3.0)
    np.testing.assert_allclose(found[0].privacy_scale, [2, 3, 4])


def test_more_data_sets_go_on_with_the_cells_of_fewer():
    settings = command.SIZES["small"]
    few, more = (cells_of(settings, Options(count, who="ours")) for count in (12, 40))
    assert set(few) < set(more)
    assert {cell.method for cell in few} == {"dpvi"}


def test_the_command_goes_on_where_it_was_killed(tmp_path, capsys):
    arguments = ["--quick", "--who", "rivals", "--output", str(tmp_path)]
    command.main(arguments)
    stored = tmp_path / "results.json"
    content = json.loads(stored.read_text(encoding="utf-8"))
    assert {cell["method"] for cell in content["cells"]} >= {REFERENCE, "noisy moments", "data augmentation"}
    assert "Not run: BinAgg, BinAgg, charged, diffprivlib, dpvi" in (tmp_path / "table.md").read_text(encoding="utf-8")
    lost = content["cells"].pop(1)
    stored.write_text(json.dumps(content), encoding="utf-8")
    capsys.readouterr()
    command.main(arguments)
    again = json.loads(stored.read_text(encoding="utf-8"))["cells"]
    assert capsys.readouterr().out.count(" s: ") == 1
    assert {**again[-1], "seconds": None} == {**lost, "seconds": None}


@pytest.mark.parametrize(
    ("coverage", "width", "said"),
    [
        (0.99, 1.0, "wider (2.00 ×)"),
        (0.95, 0.4, "narrower (0.80 ×)"),
        (0.80, 0.4, "narrower (0.80 ×), but covers less"),
        (None, 1.0, "wider (2.00 ×)"),
    ],
)
def test_verdicts(coverage, width, said):
    row = report.Row("dpvi", 40, 0.95, 0.01, 0.9, 0.02, None, 0.5, 0.5, 0.1, 3.0)
    assert report.verdict(coverage, 0.01, width, row) == said
    assert report.verdict(coverage, 0.01, width, None) == "dpvi not run"
    poor = row._replace(coverage=0.5)
    assert report.verdict(0.95, 0.01, 1.0, poor) == "wider (2.00 ×), but dpvi covers less"
