"""A private regression in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpvi.declared.plan import Plan
from dpvi.ledger import Ledger
from dpvi.models.formula import FormulaError, FormulaModel
from dpvi.models.formula.priors import PRIOR_SCALE
from dpvi.privacy import plan as make_plan
from dpvi.regression.fitted import RegressionResult
from dpvi.run.fitting import fit
from dpvi.table import Schema


def glm(
    formula: str,
    data: Any,
    schema: Schema | str | Path,
    *,
    family: str = "bernoulli",
    epsilon: float | None = None,
    delta: float | None = None,
    plan: Plan | None = None,
    trials: str | None = None,
    offset: str | None = None,
    prior: Mapping[str, tuple[float, float]] | None = None,
    prior_scale: float = PRIOR_SCALE,
    degrees_of_freedom: float = 4.0,
    ledger: Ledger | None = None,
    checkpoint: str | Path | None = None,
    seed: int | None = None,
    progress: bool = True,
) -> RegressionResult:
    """Fit a private generalised linear model given by a formula.

    ``dpvi.glm("recid ~ age + C(charge) + priors + sex", data, schema, epsilon=1, delta=1e-6)``: there is nothing to
    choose but the budget. Levels, bounds, scales and knots come from the schema and never from the records.

    Parameters
    ----------
    formula
        As statsmodels, Bambi and formulaic read it: ``a * b``, ``a:b``, ``C(a, contr.sum)``, ``I(x ** 2)``,
        ``log(x)``, ``poly(x, 2)``, ``bs(x, df=5)``, ``cr(x, df=4)``, ``offset(log(days))``, ``(1 | clinic)``. See
        docs/how-to/regression-in-one-line.md for all of it.
    data
        A pandas or polars data frame, an Arrow table, a dict of columns, or the path of a CSV or Parquet file. Columns
        that the formula does not name are not read.
    schema
        What is publicly known of the columns, or the path of its TOML file. Values beyond declared bounds count as the
        bounds.
    family
        ``"bernoulli"``, ``"gaussian"``, ``"student_t"``, ``"binomial"``, ``"poisson"``, ``"negative_binomial"``,
        ``"gamma"`` or ``"ordinal"``.
    epsilon, delta
        The budget. A run then measures, see docs/explanation/metric-posterior.md.
    plan
        For experts: a plan of one's own in place of the budget, with ``covariates=`` as
        ``FormulaModel(formula, schema, family).covariates()`` has them if it is to measure.
    trials
        Of ``"binomial"``: the count column with the number of trials.
    offset
        An expression that is added to the linear predictor, such as ``"log(exposure)"``.
    prior
        ``{term or "Intercept": (mean, standard deviation)}`` per unit of the column as it stands in the table, in place
        of the weakly informative default; the intercept's is at the middle of all columns.
    prior_scale
        Standard deviation of coefficients on the declared scale, see ``prior_summary()``.
    degrees_of_freedom
        Of ``"student_t"``.
    ledger, checkpoint, seed, progress
        As :func:`dpvi.fit` takes them.

    Returns
    -------
    RegressionResult

    Guarantees
    ----------
    Those of the plan, for one row as the record. Rows with a missing value, where the schema allows any, are left out
    before anything is computed: each row by itself, so that the guarantee covers it.

    Raises
    ------
    FormulaError
        With one sentence, before a record is read, where formula, family, prior and schema do not fit together.
    SchemaError
        Where the table does not fit the schema.
    """
    model = FormulaModel(
        formula, declared(schema), family, trials, offset, prior or {}, prior_scale, degrees_of_freedom
    )
    plan = _plan(model, epsilon, delta, plan)
    result = fit(model, model.arrays(data), plan, ledger=ledger, checkpoint=checkpoint, seed=seed, progress=progress)
    return RegressionResult(result, model)


def declared(schema: Schema | str | Path) -> Schema:
    """A schema, or the one of a TOML file."""
    return Schema.load(schema) if isinstance(schema, str | Path) else schema


def _plan(model: FormulaModel, epsilon: float | None, delta: float | None, plan: Plan | None) -> Plan:
    if plan is None:
        if epsilon is None or delta is None:
            raise ValueError("Give epsilon and delta, such as epsilon=1, delta=1e-6, or a plan.")
        return make_plan(epsilon, delta, covariates=model.covariates())
    if epsilon is not None or delta is not None:
        raise ValueError("Give either epsilon and delta, or a plan; a plan has its own.")
    gaps = [name for name in model.columns if model.schema[name].missing]
    if gaps and (plan.adjacency != "add_remove" or plan.num_records is not None):
        raise FormulaError(
            f"Values of {', '.join(gaps)} may be missing, and records with a missing value are left out. So the number "
            "of records that count is no public one; use a plan of adjacency 'add_remove' without num_records."
        )
    return plan
