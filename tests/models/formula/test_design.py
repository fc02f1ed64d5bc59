"""The design of a formula is formulaic's model matrix on the same rows, with declared levels and bounds."""

from __future__ import annotations

import datetime
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest

from dpvi.models.formula.design import FormulaDesign
from dpvi.models.formula.errors import FormulaError
from dpvi.table import Boolean, Categorical, Count, Date, Numeric, Ordinal, Schema

SCHEMA = Schema(
    {
        "y": Numeric(0, 10),
        "age": Numeric(18, 90),
        "dose": Numeric(0.5, 20.0),
        "visits": Count(12),
        "job": Categorical(("none", "state", "private")),
        "town": Categorical(("x", "y")),
        "grade": Ordinal(("low", "mid", "high")),
        "ill": Boolean(),
        "wave": Numeric(1, 3, integer=True),
        "hours-per-week": Numeric(0, 99),
        "on.drug": Numeric(0, 5),
        "day": Date(datetime.date(2020, 1, 1), datetime.date(2020, 12, 31)),
    }
)


def rows(count: int = 60) -> dict:
    random = np.random.default_rng(3)
    return {
        "y": random.uniform(0, 10, count),
        "age": random.uniform(18, 90, count),
        "dose": random.uniform(0.5, 20, count),
        "visits": random.integers(0, 13, count),
        "job": random.choice(["none", "state", "private"], count),
        "town": random.choice(["x", "y"], count),
        "grade": random.choice(["low", "mid", "high"], count),
        "ill": random.uniform(size=count) < 0.5,
        "wave": random.integers(1, 4, count),
        "hours-per-week": random.uniform(0, 99, count),
        "on.drug": random.uniform(0, 5, count),
        "day": np.datetime64("2020-01-01") + random.integers(0, 365, count),
    }


FORMULAS = [
    "y ~ 1",
    "y ~ age",
    "y ~ age + job",
    "y ~ age - 1",
    "y ~ job - 1",
    "y ~ job + town - 1",
    "y ~ age * job",
    "y ~ age:job",
    "y ~ job:town",
    "y ~ job * town",
    "y ~ job + job:town",
    "y ~ 0 + job:age + town",
    "y ~ (age + job + town) ** 2",
    "y ~ age * job * town",
    "y ~ job * town * grade - 1",
    "y ~ ill * age + ill:job - 1",
    "y ~ C(job)",
    "y ~ C(ill)",
    "y ~ C(wave) * age",
    "y ~ wave + C(wave):town",
    "y ~ C(job, contr.treatment('state')) + age",
    "y ~ C(job, Treatment(reference='private'))",
    "y ~ C(job, contr.sum) * town",
    "y ~ C(job, contr.helmert)",
    "y ~ C(grade, contr.poly) + grade:age",
    "y ~ C(job, levels=['state', 'none', 'private'])",
    "y ~ I(age ** 2) + age",
    "y ~ {age ** 2 / 100} + np.log(dose) * ill",
    "y ~ log(dose) + exp(dose / 20) + np.sqrt(age) + log10(dose)",
    "y ~ I((age - 50) / 10 * dose)",
    "y ~ I(age > 50) + I(job == 'state'):age",
    "y ~ poly(age, 3, raw=True)",
    "y ~ bs(age, knots=[30, 55.5], lower_bound=18, upper_bound=90)",
    "y ~ dose / town",
    "y ~ bs(age, knots=[40], degree=2, lower_bound=18, upper_bound=90) * town",
    "y ~ bs(age, knots=[40], include_intercept=True, lower_bound=18, upper_bound=90) - 1",
    "y ~ cr(age, knots=[30, 60], lower_bound=18, upper_bound=90)",
    "y ~ cr(age, knots=[25, 50, 70], lower_bound=18, upper_bound=90):ill",
    "y ~ visits + I(visits ** 2)",
    "y ~ `hours-per-week` + log(`hours-per-week` + 1) + on.drug",
    "y ~ Q('hours-per-week') * town",
    "y ~ age %in% town",
]


@pytest.fixture(scope="module")
def table():
    return rows()


@pytest.fixture(scope="module")
def encoded(table):
    return SCHEMA.encode(table)


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_design_is_formulaics(formula, table, encoded):
    formulaic = pytest.importorskip("formulaic")
    design = FormulaDesign(formula, SCHEMA)
    frame = SCHEMA.decode(encoded, to="pandas")
    wanted = formulaic.model_matrix(formula, frame, na_action="ignore").rhs
    names = [name for name in wanted.columns if name != "Intercept"]
    matrix = design.raw.matrix(encoded)
    assert design.parsed.intercept == ("Intercept" in wanted.columns)
    assert [name.replace(" ", "") for name in design.names] == [name.replace(" ", "") for name in names]
    expected = wanted[names].to_numpy(np.float64) if names else np.zeros((len(frame), 0))
    np.testing.assert_allclose(design.values(matrix), expected, rtol=1e-9, atol=1e-9)
    compiled = jax.jit(lambda x: design.values(x, jnp))(jnp.asarray(matrix, jnp.float32))
    scale = np.maximum(np.abs(expected).max(axis=0, initial=0.0), 1.0) if expected.size else 1.0
    np.testing.assert_allclose(np.asarray(compiled) / scale, expected / scale, atol=2e-5)


def test_levels_and_bounds_come_from_the_schema(encoded):
    """One row alone has the columns that the declarations make, and bounds of the declaration and not of the rows."""
    design = FormulaDesign("y ~ job + bs(age, df=5) + cr(dose, df=4)", SCHEMA)
    one = design.values(design.raw.matrix({name: leaf[:1] for name, leaf in encoded.items()}))
    every = design.values(design.raw.matrix(encoded))
    assert one.shape[1] == 2 + 5 + 4
    np.testing.assert_allclose(one[0], every[0])


def test_natural_splines_interpolate_and_are_straight_at_the_ends():
    schema = Schema({"y": Numeric(0, 1), "x": Numeric(0, 1)})
    design = FormulaDesign("y ~ cr(x, df=5)", schema)
    at = np.linspace(0, 1, 201)
    basis = design.values(design.raw.matrix(schema.encode({"y": at, "x": at})))
    np.testing.assert_allclose(basis[::50], np.eye(5), atol=1e-12)
    np.testing.assert_allclose(basis.sum(axis=1), 1)
    curvature = np.diff(basis, 2, axis=0) / 0.005**2
    assert np.abs(curvature[0]).max() < 0.03 * np.abs(curvature).max()


def test_legendre_polynomials_are_orthogonal_over_the_declared_range():
    design = FormulaDesign("y ~ poly(age, 3)", SCHEMA)
    leaf = np.linspace(-1, 1, 20001)
    matrix = np.stack([np.ones_like(leaf), leaf], axis=1)
    values = design.values(matrix)
    products = values.T @ values / len(leaf)
    np.testing.assert_allclose(products, np.diag([1 / 3, 1 / 5, 1 / 7]), atol=1e-3)


def test_scale_of_a_column_is_a_quarter_of_its_declared_range():
    design = FormulaDesign("y ~ age + job + ill", SCHEMA)
    np.testing.assert_allclose(design.centre, [54, 0, 0, 0])
    np.testing.assert_allclose(design.scale, [18, 1, 1, 1])


def test_dates_are_days_since_the_first_declared_one(encoded):
    design = FormulaDesign("y ~ day", SCHEMA)
    found = design.values(design.raw.matrix(encoded))[:, 0]
    np.testing.assert_allclose(found, (rows()["day"] - np.datetime64("2020-01-01")).astype(int), atol=1e-9)


def test_squares_follow_from_the_same_rows_as_what_is_squared():
    """The reason why a design is computed inside the model: a moved row keeps x and x² together."""
    design = FormulaDesign("y ~ dose + I(dose ** 2)", SCHEMA)
    moved = np.array([[1.0, 0.31], [1.0, -0.77]])
    dose, square = design.values(moved).T
    np.testing.assert_allclose(square, dose**2)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("y", "A formula is a text"),
        ("y ~ agee", "does not declare"),
        ("y ~ log(agee)", "no declared column"),
        ("~ age", "needs a response"),
        ("log(y) ~ age", "Transform it in the table"),
        ("y ~ y + age", "both sides"),
        ("y ~ center(age)", "read its settings from the records"),
        ("y ~ log(visits)", "not finite"),
        ("y ~ C(age)", "declared levels"),
        ("y ~ log(job)", "has no numbers"),
        ("y ~ (age | town)", "varying intercept"),
        ("y ~ __import__('os').system('true')", "cannot be read"),
        ("y ~ I(age.__class__)", "cannot have"),
        ("y ~ I([1 for age in (1,)])", "cannot have"),
        ("y ~ {(lambda: 1)()}", "cannot have"),
        ("y ~ I(age ** 9999)", "A power"),
        ("y ~ bs(age, df=2)", "fewer columns"),
        ("y ~ bs(age, knots=[5])", "must rise and lie between"),
        ("y ~ C(job, contr.treatment('other'))", "declared levels"),
        ("y ~ I(job == 'other')", "none of its declared levels"),
        ("y ~ age +", "cannot be read"),
        ("y ~ age + age:offset(dose)", "by itself"),
        ("y ~ 3", "cannot be"),
        ("y ~ " + " * ".join(f"a{i}" for i in range(40)), "far too many terms"),
        ("y ~ (" + " + ".join(f"a{i}" for i in range(200)) + ") ** 4", "far too many terms"),
        ("y ~ " + ":".join("(age + job)" for _ in range(30)), "far too many terms"),
        ("y ~ ((age + job) ** 9) ** 9", "far too many terms"),
        ("y ~ " + "*".join("abcdefghijklmnopqrs"), "far too many terms"),  # took half a minute to multiply out
        (f"y ~ cr(age, knots={[20 + k for k in range(60)]})", "more than 50 knots"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(formula, said):
    with pytest.raises(FormulaError, match=said.replace("(", r"\(")):
        FormulaDesign(formula, SCHEMA)


def test_many_interactions_of_two_are_not_too_many():
    names = list(SCHEMA.columns)[1:9]
    formula = "y ~ " + " + ".join(f"{a}:{b}" for a in names for b in names if a < b) + " + bs(age, df=4):town"
    assert len(FormulaDesign(formula, SCHEMA).parsed.terms) == len(names) * (len(names) - 1) // 2 + 1


def test_names_of_columns_are_taken_as_they_stand():
    frame = pandas.DataFrame({"y": [1.0], "a b": [2.0]})
    schema = Schema({"y": Numeric(0, 2), "a b": Numeric(0, 4)})
    design = FormulaDesign("y ~ `a b`", schema)
    assert design.names == ("a b",)
    assert design.values(design.raw.matrix(schema.encode(frame))).tolist() == [[2.0]]


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("y ~ first:second", "more than 2000 columns"),
        ("y ~ C(first, contr.poly)", "more than 100 levels"),
        ("y ~ C(first, contr.helmert)", "more than 100 levels"),
        ("y ~ (1 | many)", "more than 10000 levels"),
    ],
)
def test_what_would_fill_the_memory_is_refused_before_it_is_made(formula, said):
    """A result from somebody else brings its formula and its levels."""
    many = {name: Categorical(tuple(map(str, range(n)))) for name, n in (("first", 400), ("second", 400))}
    schema = Schema({"y": Numeric(0, 1), **many, "many": Categorical(tuple(map(str, range(10_100))))})
    tracemalloc.start()
    with pytest.raises(FormulaError, match=said.replace("(", r"\(")):
        FormulaDesign(formula, schema)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**28  # 160,000 columns of the grid are 40 times that
