"""The coverage experiments: their models are the paper's, their exact posteriors are exact, and ``--quick`` runs."""

from __future__ import annotations

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from support.statistics import assert_close, assert_rates

from dpvi.models.numpyro import NumPyroModel
from dpvi.records.arrays import structure_of
from dpvi.run.optimizers import learning_rates
from experiments.coverage import study as study_module
from experiments.coverage.judge import judge
from experiments.coverage.methods import METHODS, Method, Posteriors, mixture_components, mixture_draws
from experiments.coverage.runs import Study, simulate_group
from experiments.coverage.study import run_group, tasks_of
from experiments.exponential_families.__main__ import main as exponential_families
from experiments.exponential_families.cases import CASES as EXPONENTIAL
from experiments.linear_regression_10d.__main__ import main as linear_regression
from experiments.linear_regression_10d.cases import CASES as REGRESSION

CASES = {case.problem.name: case for case in (*EXPONENTIAL, REGRESSION[0])}


@pytest.fixture(params=CASES, name="case")
def _case(request):
    return CASES[request.param]


def ready(case, records):
    return NumPyroModel(case.problem.model, structure_of(jax.tree.map(jnp.asarray, records)))


@pytest.mark.usefixtures("x64")
def test_models_and_exact_posteriors_agree(case):
    """Under the exact posterior the model's score has mean zero, and its product with z has mean minus one."""
    rng = np.random.default_rng(1)
    data = case.problem.simulate(rng, 40)
    model = ready(case, data.records)
    assert model.dimension == case.problem.dimension == len(data.truth)
    records = jax.tree.map(jnp.asarray, data.records)

    def log_joint(z):
        return model.log_prior(z) + jnp.sum(jax.vmap(model.log_likelihood, (None, 0))(z, records))

    exact = case.problem.conjugate(data.records)
    draws = exact.sample(rng, 4000)
    scores = np.asarray(jax.vmap(jax.grad(log_joint))(jnp.asarray(draws)))
    assert_mean(scores, 0.0)
    centred = draws - draws.mean(axis=0)
    assert_mean(centred * scores, -1.0)
    with pytest.raises(AssertionError):  # a posterior that is shifted by a fifth of its width
        assert_mean(np.asarray(jax.vmap(jax.grad(log_joint))(jnp.asarray(draws + 0.2 * draws.std(axis=0)))), 0.0)


def assert_mean(values, expected):
    assert_close(values.mean(axis=0), expected, values.std(axis=0) / math.sqrt(len(values)))


def test_marginal_densities_are_those_of_the_draws(case):
    rng = np.random.default_rng(2)
    exact = case.problem.conjugate(case.problem.simulate(rng, 60).records)
    draws = exact.sample(rng, 5000)
    for i in {0, draws.shape[1] - 1}:
        grid = np.linspace(draws[:, i].min() - 1, draws[:, i].max() + 1, 2001)
        points = np.tile(draws[0], (len(grid), 1))
        points[:, i] = grid
        density = np.exp([exact.marginal_log_density(z)[i] for z in points])
        cdf = np.cumsum(density) * (grid[1] - grid[0])
        assert cdf[-1] == pytest.approx(1, abs=1e-3)
        assert scipy.stats.kstest(draws[:, i], lambda z, g=grid, c=cdf: np.interp(z, g, c)).pvalue > 1e-4
        shifted = draws[:, i] + 0.2 * draws[:, i].std()
        assert scipy.stats.kstest(shifted, lambda z, g=grid, c=cdf: np.interp(z, g, c)).pvalue < 1e-4


def test_truths_are_drawn_from_the_prior_and_independent_of_the_group(case):
    study = Study(num_data_sets=4, num_records=5)
    together, apart = simulate_group(case, study, range(4)), simulate_group(case, study, [2])
    np.testing.assert_array_equal(together.truths[2], apart.truths[0])
    assert together.seeds[2] == apart.seeds[0]
    assert len(set(together.seeds)) == 4
    for all_sets, one in zip(jax.tree.leaves(together.records), jax.tree.leaves(apart.records), strict=True):
        np.testing.assert_array_equal(all_sets[2], one[0])
    assert len({float(truth[0]) for truth in together.truths}) == 4


def test_runs_have_the_published_step_sizes():
    """λ of the paper at σ = 360, times κ, because optimisers here see the noisy sum divided by κ."""
    expected = {"gamma_exponential": 1.389e-6, "beta_bernoulli": 1.389e-6, "dirichlet_categorical": 1.389e-6}
    for name, rate in expected.items():
        problem, plan = CASES[name].problem, CASES[name].plan(10_000)
        rates = learning_rates(plan, problem.family, problem.dimension, beta=problem.beta, lambda_c=problem.lambda_c)
        np.testing.assert_allclose(rates[: problem.dimension], rate, rtol=1e-3)
        np.testing.assert_allclose(rates[problem.dimension :], problem.scale_beta * rate, rtol=1e-3)
    problem, plan = REGRESSION[0].problem, REGRESSION[0].plan(10_000)
    rates = learning_rates(plan, problem.family, 12, beta=problem.beta, lambda_c=problem.lambda_c)
    np.testing.assert_allclose(rates[1:12], 4 * 3.08e-9, rtol=2e-3)
    np.testing.assert_allclose(rates[0], 3.08e-9 / 7, rtol=2e-3)
    np.testing.assert_allclose(rates[12:], 4 * 1500 * 3.08e-9, rtol=2e-3)


def test_published_noise_spends_less_than_the_paper_states():
    for case in (EXPONENTIAL[0], REGRESSION[2]):
        assert case.plan(10_000).epsilon < case.epsilon
        assert case.plan(10_000, tight=True).noise_multiplier < case.noise_multiplier


def test_initial_scales_are_the_papers(case):
    xi = case.problem.family.initial(jnp.asarray(case.problem.initial_location))
    np.testing.assert_allclose(xi[case.problem.dimension :], case.problem.initial_scale_parameter, rtol=1e-5)


def exact_posteriors(group, results):
    return METHODS["nonprivate"].posteriors(group, results)


@pytest.mark.parametrize("name", ["gamma_exponential", "linear_regression_10d"])
def test_judging_tells_the_exact_posterior_from_wrong_ones(name):
    """Over 200 data sets the exact posterior is within the perfect band; half as wide and shifted ones are not."""
    study = Study(num_data_sets=200, num_records=50, num_draws=500, num_repeats=10)
    group = simulate_group(CASES[name], study, range(200))
    exact = exact_posteriors(group, [])
    row = judge(METHODS["nonprivate"], exact, group.truths, None, study)
    assert row.coverage.rmse.mean < row.perfect_repeated.upper
    assert row.one_sided_rmse < row.perfect.upper
    assert_rates(row.coverage.coverage * group.truths.size, group.truths.size, 0.95)
    mean, sd = exact.draws.mean(axis=1, keepdims=True), exact.draws.std(axis=1, keepdims=True)
    narrow = exact._replace(draws=mean + 0.5 * (exact.draws - mean))
    assert judge(METHODS["naive"], narrow, group.truths, None, study).coverage.rmse.mean > row.perfect.upper
    shifted = judge(METHODS["naive"], exact._replace(draws=exact.draws + 0.5 * sd), group.truths, None, study)
    assert shifted.one_sided_rmse > row.perfect.upper
    assert shifted.mean_rank > 0.5
    assert shifted.crps > row.crps


def test_failed_posteriors_are_counted_and_left_out():
    study = Study(num_data_sets=20, num_records=50, num_draws=200, num_repeats=2)
    group = simulate_group(CASES["beta_bernoulli"], study, range(20))
    exact = exact_posteriors(group, [])
    broken = Posteriors(exact.draws.copy(), exact.log_scores.copy(), exact.draws.mean(axis=1))
    broken.draws[3], broken.log_scores[3], broken.centres[3] = np.nan, np.nan, np.nan
    row = judge(METHODS["naive"], broken, group.truths, None, study)
    assert (row.coverage.num_posteriors, row.coverage.num_dropped) == (19, 1)
    assert math.isfinite(row.coverage.log_score)
    assert json.loads(json.dumps(row.to_dict(), allow_nan=False))["num_dropped"] == 1


def test_mixtures_are_drawn_as_they_are():
    rng = np.random.default_rng(5)
    means, sds = np.array([[0.0, 1.0], [4.0, 1.0]]), np.array([[1.0, 2.0], [0.5, 2.0]])
    draws = mixture_draws(rng, means, sds, 20_000).astype(np.float64)
    assert_mean(draws, [2.0, 1.0])
    assert_mean((draws - [2.0, 1.0]) ** 2, [4 + (1 + 0.25) / 2, 4.0])
    with pytest.raises(TypeError, match="write its method as a function"):
        mixture_components(object())


def test_a_method_of_ones_own_is_one_entry_and_slow_ones_see_fewer_data_sets(monkeypatch):
    methods = {"all": Method("all", exact_posteriors), "few": Method("few", exact_posteriors, slow=True)}
    monkeypatch.setattr(study_module, "METHODS", methods)
    study = Study(num_data_sets=130, num_slow_data_sets=7, num_records=5, num_draws=10, num_repeats=1)
    tasks = list(tasks_of(CASES["beta_bernoulli"], study, ["all", "few"]))
    assert [task.methods for task in tasks] == [("all", "few"), ("all",)]
    outcome = run_group(tasks[0])
    assert {name: len(part.draws) for name, part in outcome.posteriors.items()} == {"all": 125, "few": 7}
    np.testing.assert_array_equal(outcome.posteriors["few"].draws, outcome.posteriors["all"].draws[:7])


@pytest.mark.parametrize(
    ("main", "cases"),
    [(exponential_families, EXPONENTIAL), (linear_regression, REGRESSION)],
    ids=["table 1", "table 2"],
)
# so few steps measure so little that the search for the posterior may stop short, widen its intervals and say so
@pytest.mark.filterwarnings("ignore:Gauss-Newton came near:dpvi.declared.validation.ConvergenceWarning")
def test_quick_runs_write_everything(main, cases, tmp_path):
    folder = main(["--quick", "--workers", "1", "--output", str(tmp_path / "results")])
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    (name, found), *others = content["cases"].items()
    assert not others
    case = next(case for case in cases if case.name == name)
    expected = {key for key, method in METHODS.items() if method.applies(case.problem) and not method.slow}
    assert set(found["methods"]) == expected
    assert found["methods"]["exact"]["paper"]["mean"] == case.paper["nuts"].mean
    assert {f"run {METHODS[key].run}" for key in expected if METHODS[key].run} | {"exact"} <= set(found["seconds"])
    assert "output" not in content["commands"][0]
    table = (folder / "table.md").read_text(encoding="utf-8")
    assert all(METHODS[key].title in table for key in expected)
    assert (folder / f"coverage_{name}.png").stat().st_size > 10_000


def test_a_table_grows_method_by_method(tmp_path):
    """Rows of earlier calls stay as they were; another study does not mix with them."""
    arguments = ["--quick", "--workers", "1", "--output", str(tmp_path)]
    exponential_families([*arguments, "--methods", "nonprivate"])
    before = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    exponential_families([*arguments, "--methods", "bernstein_sheldon"])
    after = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    name = "dirichlet_categorical"
    assert list(after["cases"][name]["methods"]) == ["nonprivate", "bernstein_sheldon"]
    assert after["cases"][name]["methods"]["nonprivate"] == before["cases"][name]["methods"]["nonprivate"]
    assert len(after["commands"]) == 2
    with pytest.raises(ValueError, match="another study"):
        exponential_families([*arguments, "--seed", "2", "--methods", "nonprivate"])


def test_unknown_methods_are_refused(capsys):
    with pytest.raises(SystemExit):
        exponential_families(["--methods", "best"])
    assert "invalid choice: 'best'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        exponential_families(["--num-datasets", "0"])
    assert "at least 1" in capsys.readouterr().err
