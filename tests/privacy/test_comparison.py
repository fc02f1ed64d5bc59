"""The comparison of accountants: order, kinds, the poster's formula by hand, sensitivity under substitution."""

from __future__ import annotations

import math

import pytest

from dpvi.privacy import accounting, compare
from dpvi.privacy.comparison import compare_noise


def rows(multiplier, delta, rate, count, adjacency="add_remove"):
    return {row.method.split()[0]: row for row in compare(multiplier, delta, rate, count, adjacency)}


def test_case_of_the_reference():
    found = rows(1.5, 1 / 60000, 128 / 60000, 9380)
    assert found["privacy"].epsilon == pytest.approx(0.535707, rel=2e-4)
    assert found["Rényi"].epsilon == pytest.approx(0.5923, abs=1e-4)
    assert found["Gaussian"].epsilon == pytest.approx(0.5272, abs=1e-4)
    assert found["Gaussian"].epsilon < found["privacy"].epsilon, "the limit is an estimate, here below the truth"
    assert [row.kind for row in found.values()] == ["tight", "bound", "estimate", "estimate"]
    assert "Void" in found["advanced"].note


@pytest.mark.parametrize(("adjacency", "sensitivity"), [("add_remove", 1), ("substitute", 2)])
def test_advanced_composition_is_the_formula_of_the_poster(adjacency, sensitivity):
    sigma, delta, q, steps = 40.0, 1e-5, 0.02, 1000
    extra = delta / 2
    subs = sensitivity * math.sqrt(2 * math.log(1.25 * steps * q / (delta - extra))) / sigma
    each = math.log(1 + q * (math.exp(subs) - 1))
    total = math.sqrt(2 * steps * math.log(1 / extra)) * each + steps * each * (math.exp(each) - 1)
    row = rows(sigma, delta, q, steps, adjacency)["advanced"]
    assert row.epsilon == pytest.approx(total, rel=1e-12)
    assert row.kind == "bound"


@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("adjacency", ["add_remove", "substitute"])
def test_bounds_lie_above_the_tight_value(rate, adjacency):
    found = rows(60.0, 1e-5, rate, 200, adjacency)
    assert found["privacy"].epsilon <= found["Rényi"].epsilon <= found["advanced"].epsilon


def test_renyi_under_substitution_does_not_halve_the_sensitivity():
    assert rows(5.0, 1e-5, 1.0, 1, "substitute")["Rényi"].epsilon == pytest.approx(
        rows(2.5, 1e-5, 1.0, 1)["Rényi"].epsilon, rel=1e-12
    )


def test_gaussian_limit_is_exact_without_sampling():
    row = rows(20.0, 1e-5, 1.0, 100)["Gaussian"]
    assert row.kind == "tight"
    assert row.epsilon == accounting.epsilon(20.0, 1e-5, 1.0, 100)


@pytest.mark.parametrize("adjacency", ["add_remove", "substitute"])
def test_noise_asked_for_meets_the_budget(adjacency):
    for row in compare_noise(1.0, 1e-5, 0.02, 500, adjacency):
        again = {r.method: r for r in compare(row.noise_multiplier, 1e-5, 0.02, 500, adjacency)}[row.method]
        assert 1 - 1e-3 < again.epsilon <= 1 + 1e-9


def test_hopeless_noise_gives_infinity_and_not_an_overflow():
    assert rows(0.005, 1e-5, 1.0, 10)["advanced"].epsilon == math.inf
