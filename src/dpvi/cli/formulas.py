"""Fits of a formula, for ``dpvi fit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpvi.cli.run_file import RunSettings
    from dpvi.table import Schema

_OF_STEPS = ("sampling_rate", "num_steps", "clip_norm", "response", "components")


def usual_family(formula: str, schema: Schema) -> str:
    """The family that fits the declaration of the response, where none was given."""
    from dpvi.table import Boolean, Count, Leveled

    name = formula.partition("~")[0].strip()
    column = schema.columns.get(name)
    if column is None:
        raise ValueError(
            f"The formula {formula!r} must begin with a column of the schema and '~'; there are "
            f"{', '.join(schema.columns)}."
        )
    if isinstance(column, Leveled) and column.num_levels > 2:
        return "ordinal"
    if isinstance(column, (Boolean, Leveled)):
        return "bernoulli"
    return "poisson" if isinstance(column, Count) else "gaussian"


def fitted_formula(settings: RunSettings, common: dict[str, Any]) -> Any:
    """The regression that ``settings`` name; ``common`` goes to the fit."""
    import dpvi
    from dpvi.models.formula import FormulaModel

    given = [name for name in _OF_STEPS if getattr(settings, name)]
    if given:
        raise ValueError(
            f"A formula takes no --{given[0].replace('_', '-')}: its run measures and has nothing to choose but the "
            "budget; leave it out."
        )
    schema = settings.declared
    family = settings.family or usual_family(settings.formula, schema)
    extra = {"num_records": settings.num_records or None, "unit": settings.unit or None}
    known = {name: value for name, value in extra.items() if value is not None}
    if settings.rows_per_unit > 1:
        known["rows_per_unit"] = settings.rows_per_unit
    trials = settings.trials or None
    covariates = FormulaModel(settings.formula, schema, family, trials).covariates()
    plan = dpvi.plan(settings.epsilon, settings.delta, covariates=covariates, **known)
    return dpvi.glm(settings.formula, settings.data, schema, family=family, trials=trials, plan=plan, **common)
