"""Which model a command is about: a formula, the built-in table model, or a NumPyro function in a file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dpvi.cli.run_file import RunSettings
    from dpvi.declared.plan import Plan
    from dpvi.table import Schema

TABLE = "table"
COMPONENTS = 16
_STEPS = {"sampling_rate": 0.01, "num_steps": 4000, "clip_norm": 2.0}  # of a table model, unless told otherwise


class Fitted(NamedTuple):
    """What a fit needs of a model that is not a formula: the program, its records and its plan."""

    model: Any
    data: Any
    plan: Plan
    start: Any = None


def model_of(settings: RunSettings) -> Any:
    """The NumPyro model that ``settings`` name; of a formula the result's own file knows it."""
    if settings.model == TABLE:
        from dpvi.models.table import TableModel

        return TableModel(settings.declared, settings.components or COMPONENTS, settings.response or None)
    return function_of(settings.model)


def function_of(place: str) -> Any:
    """The function at ``FILE.py:NAME``."""
    file, _, name = place.rpartition(":")
    if not file.endswith(".py") or not name:
        raise ValueError(f"A model is {TABLE!r} or a function in a file, FILE.py:NAME, got {place!r}.")
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {file}; --model takes FILE.py:NAME.")
    spec = importlib.util.spec_from_file_location(f"_dpvi_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # so that dataclasses and pickle in it work
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{file} could not be run: {type(error).__name__}: {error}. Repair it first.") from error
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise ValueError(f"{file} has no function {name!r}; it has {', '.join(functions) or 'none'}.")
    return found


def prepared(settings: RunSettings) -> Fitted:
    """Model, records and plan of a run without a formula."""
    import dpvi

    schema, model = settings.declared, model_of(settings)
    leaves = _leaves(model, schema)
    budget: dict[str, Any] = {"epsilon": settings.epsilon, "delta": settings.delta, **_unit(settings)}
    asked = {name: getattr(settings, name) for name in _STEPS if getattr(settings, name)}
    if settings.model == TABLE:
        import jax

        plan, start = dpvi.plan(**budget, **_STEPS | asked), model.draw_parameters(jax.random.key(0))
    else:
        start = None
        covariates: dict[str, Any] = {} if asked else {"covariates": _covariates(model, schema, leaves)}
        plan = dpvi.plan(**budget, **asked, **covariates)
    arrays = schema.encode(settings.data)
    return Fitted(model, {name: arrays[name] for name in leaves}, plan, start)


def _unit(settings: RunSettings) -> dict[str, Any]:
    known = {"num_records": settings.num_records, "unit": settings.unit}
    found = {name: value for name, value in known.items() if value}
    return found | ({"rows_per_unit": settings.rows_per_unit} if settings.rows_per_unit > 1 else {})


def _leaves(model: Any, schema: Schema) -> list[str]:
    """The encoded columns that are arguments of the model."""
    if hasattr(model, "leaves"):
        return list(model.leaves)
    arguments = inspect.signature(model).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in arguments):
        return list(schema.leaves)
    lacking = [each.name for each in arguments if each.name not in schema.leaves and each.default is each.empty]
    if lacking:
        raise ValueError(
            f"The model has arguments {', '.join(map(repr, lacking))}, which no column of the schema is named after; "
            f"it has {', '.join(schema.leaves)}."
        )
    return [each.name for each in arguments if each.name in schema.leaves]


def _covariates(model: Any, schema: Schema, leaves: list[str]) -> list[Any]:
    """How the columns that the model does not observe are counted, in the order in which they are read."""
    import jax
    import jax.numpy as jnp

    from dpvi.models.numpyro import NumPyroModel
    from dpvi.models.table.regression import counted_column

    dtypes = {name: schema.leaves[name] for name in leaves}
    structure = {
        name: jax.ShapeDtypeStruct((), jnp.result_type(float) if dtype.kind == "f" else jnp.dtype(dtype))
        for name, dtype in dtypes.items()
    }
    ready = NumPyroModel(model, structure)
    names = sorted(structure)
    return [counted_column(schema[name]) for i, name in enumerate(names) if i not in ready.responses]
