"""What noisy histograms say about the population, and draws from it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.small_models import histogram_plan

from dpvi.declared.columns import Constant, Levels, Numeric, OneHot
from dpvi.models.base import ModelError
from dpvi.models.numpyro import NumPyroModel
from dpvi.population.covariate_law import draw_columns, drawn_law, independent_law
from dpvi.population.covariates import check_columns, drawn_populations, histogram_law, released_population

COLUMNS = (Numeric(0, 10, bins=2), OneHot(3, reference=True), Levels((0.0, 5.0)), Constant(7.0))
SHARES = np.array([0.25, 0.75, 0.5, 0.3, 0.2, 0.9, 0.1])


def regression(x, group, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + group, 1.0), obs=y)


FLOAT = jnp.dtype("float32")
MODEL = NumPyroModel(
    regression,
    (jax.ShapeDtypeStruct((4,), FLOAT), jax.ShapeDtypeStruct((), FLOAT), jax.ShapeDtypeStruct((), FLOAT)),
)


def law(columns, shares):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, FLOAT), independent_law(columns, shares))


def test_laws_at_random_keep_the_columns_and_let_them_go_together():
    """Correlations of ranks have the standard deviation that is stated, ½/√4; without factors they would have none."""
    columns, n = tuple(Numeric(0, 1, bins=4) for _ in range(8)), 4000
    shares, random = np.tile([0.1, 0.2, 0.3, 0.4], 8), np.random.default_rng(0)
    found = []
    for repeat in range(8):
        drawn = jax.tree.map(lambda leaf: jnp.asarray(leaf, FLOAT), drawn_law(columns, shares, 1e9, 1.0, random))
        rows = np.asarray(draw_columns(columns, drawn, jax.random.key(repeat), n))
        np.testing.assert_allclose([np.mean(rows[:, 0] < edge) for edge in (0.25, 0.5)], [0.1, 0.3], atol=3 / n)
        found.append(np.corrcoef(rows.T)[np.triu_indices(8, 1)])
    spread, count = np.std(found), 8 * 8  # columns of one law are no independent draws
    assert abs(spread - 0.25) < 4 * 0.25 / np.sqrt(2 * count)


def test_populations_differ_by_the_noise_of_their_histograms():
    plan = histogram_plan(COLUMNS, noise_multiplier=10.0)
    scale = plan.release("histograms").noise_scale
    found = released_population(plan, 5000 * SHARES)
    drawn = drawn_populations(plan, found, 400, seed=1)
    first = np.array([population.law.shares[2] for population in drawn])
    assert abs(first.std() - scale / 5000) < 4 * scale / 5000 / np.sqrt(2 * len(first)) + 0.1 * scale / 5000
    orders = {tuple(population.law.order[2:5]) for population in drawn}
    assert len(orders) == 6  # levels without an order come in any
    assert all(tuple(population.law.order[:2]) == (0, 1) for population in drawn)


def test_draws_have_the_shares_of_their_histograms():
    """Stratified: shares are met up to one record per bin, not up to a standard error."""
    n = 1000
    draws = np.asarray(draw_columns(COLUMNS, law(COLUMNS, SHARES), jax.random.key(0), n))
    assert draws.shape == (n, 5)
    assert abs(np.mean(draws[:, 0] < 5) - 0.25) <= 3 / n
    reference = np.mean(np.all(draws[:, 1:3] == 0, axis=1))
    np.testing.assert_allclose([reference, *draws[:, 1:3].mean(axis=0)], [0.5, 0.3, 0.2], atol=3 / n)
    assert abs(np.mean(draws[:, 3] == 5) - 0.1) <= 3 / n
    assert np.all(draws[:, 4] == 7)
    correlation = np.corrcoef(draws[:, 0], draws[:, 3])[0, 1]
    assert abs(correlation) < 4 / np.sqrt(n)


def test_the_law_fills_the_leaves_of_the_model():
    columns = (Numeric(0, 1, bins=2), Numeric(0, 1, bins=2), Constant(1.0), Levels((3.0,)), Constant(2.0))
    check_columns(MODEL, columns)
    shares = np.array([0.5, 0.5, 0.5, 0.5, 1.0])
    x, group = histogram_law(MODEL, columns, law(columns, shares))(jax.random.key(0), 6)
    assert x.shape == (6, 4)
    assert group.shape == (6,)
    assert np.all(np.asarray(group) == 2)
    with pytest.raises(ModelError, match=r"4 columns wide.*data\[0\], data\[1\].*have 5"):
        check_columns(MODEL, columns[1:])


def test_the_number_of_records_comes_from_the_totals():
    """Over repeated noise N̂ is unbiased and has the variance it claims; the plain mean of totals would have more."""
    plan = histogram_plan(COLUMNS, noise_multiplier=10.0)
    truth = 5000 * SHARES
    scale = plan.release("histograms").noise_scale
    noise = scale * np.random.default_rng(0).normal(size=(1000, len(truth)))
    found = [released_population(plan, truth + row) for row in noise]
    sizes = np.array([population.num_records for population in found])
    sd = np.sqrt(found[0].variance)
    assert abs(sizes.mean() - 5000) < 4 * sd / np.sqrt(len(sizes))
    tolerance = 4 / np.sqrt(2 * len(sizes))
    assert sizes.std() / sd == pytest.approx(1.0, abs=tolerance)
    totals = (truth + noise)[:, :2].sum(axis=1)  # power: one column's total alone
    assert totals.std() / sd != pytest.approx(1.0, abs=tolerance)
    for population in found[:100]:
        for part in np.split(population.law.shares, [2, 5]):
            assert part.min() >= 0
            assert part.sum() == pytest.approx(1.0)


def test_a_public_number_of_records_is_used_as_it_is():
    plan = histogram_plan(COLUMNS, num_records=4321)
    population = released_population(plan, 5000 * SHARES)
    assert population.num_records == 4321
    assert population.variance == 0
