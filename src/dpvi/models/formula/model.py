"""A regression as a NumPyro model: made of a formula, declared columns and a family, and of nothing else.

With x the raw columns of a record, X(x) its design, c and s the declared middle and scale of each column of it,

    η = intercept + Σ_j weights_j (X_j − c_j)/s_j + offset + Σ_g sd_g · effects_g[level of g],     y ~ family(η).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro import plate, sample
from numpyro.distributions import Normal

from dpvi.declared import columns as counted
from dpvi.models.formula.design import FormulaDesign
from dpvi.models.formula.errors import FormulaError
from dpvi.models.formula.families import Response, checked_response
from dpvi.models.formula.priors import (
    PRIOR_SCALE,
    Priors,
    checked_prior,
    described,
    further_priors,
    group_priors,
    priors_of,
)
from dpvi.table import Count, Schema, observed_leaf

KIND, VERSION = "glm", 1
_FIELDS = ("formula", "schema", "family", "trials", "offset", "prior", "prior_scale", "degrees_of_freedom")


@dataclass(frozen=True, eq=False)
class FormulaModel:
    """A regression of one declared column on others; a NumPyro model by itself: call it with ``x`` and ``y``.

    Parameters
    ----------
    formula
        Such as ``"recid ~ age + C(charge) + offset(log(days)) + (1 | court)"``.
    schema
        The declared columns.
    family
        One of :data:`~dpvi.models.formula.families.FAMILIES`.
    trials
        Of ``"binomial"``: the count column that holds the number of trials.
    offset
        An expression that is added with coefficient one.
    prior
        ``{term: (mean, standard deviation)}`` per unit of the column, in place of the default.
    prior_scale
        Of coefficients on the declared scale; the intercept's is twice that.
    degrees_of_freedom
        Of ``"student_t"``.
    """

    formula: str
    schema: Schema
    family: str = "gaussian"
    trials: str | None = None
    offset: str | None = None
    prior: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    prior_scale: float = PRIOR_SCALE
    degrees_of_freedom: float = 4.0
    design: FormulaDesign = field(init=False)
    response: Response = field(init=False)
    priors: Priors = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema):
            raise TypeError(f"schema must be a dpvi.Schema, got {type(self.schema).__name__}.")
        if not 0 < float(self.prior_scale) < 1e6:
            raise FormulaError(f"prior_scale must be a number above zero, got {self.prior_scale!r}.")
        self._check_trials()
        extra = [each for each in (_quoted(self.trials), self.offset) if each is not None]
        keep = object.__setattr__
        keep(self, "prior", checked_prior(self.prior))
        keep(self, "design", FormulaDesign(self.formula, self.schema, tuple(extra)))
        name = self.design.parsed.response
        keep(self, "response", checked_response(self.family, name, self.schema[name], self.degrees_of_freedom))
        keep(self, "priors", priors_of(self.design, self.response, self.prior, float(self.prior_scale)))
        if name == self.trials:
            raise FormulaError(f"The response {name!r} cannot hold the number of trials, too.")
        for offset in self._offsets:
            with np.errstate(all="ignore"):
                values = self.design.expression(offset, self.design.raw.public_grid())
            if not np.all(np.isfinite(values)):
                raise FormulaError(f"The offset {offset!r} is not finite all over the declared bounds; tighten them.")

    def __call__(self, x: Any, y: Any = None) -> None:
        """The NumPyro model; ``x`` as :meth:`arrays` makes it."""
        linear = self._offset_and_groups(x)
        if self.has_intercept:
            linear = linear + x[..., 0] * sample("intercept", Normal(*self.priors.intercept))
        if self.design.names:
            location, scale = (np.asarray(each, np.float32) for each in self.priors[:2])
            weights = sample("weights", Normal(location, scale).to_event(1))
            linear = linear + self.scaled_design(x, jnp) @ weights
        further = {site: sample(site, prior) for site, prior in further_priors(self.response).items()}
        trials = None if self.trials is None else self.trials_of(x, jnp)
        with plate("records", x.shape[0]):
            sample(self.response.name, self.response.law(linear, further, trials), obs=y)

    @property
    def has_intercept(self) -> bool:
        return self.design.parsed.intercept and self.family != "ordinal"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, the response first."""
        return (self.response.name, *self.design.raw.names)

    @cached_property
    def read_schema(self) -> Schema:
        """The declarations of these columns alone."""
        return Schema({name: self.schema[name] for name in self.columns}, self.schema.missing_markers)

    def covariates(self) -> tuple[counted.Column, ...]:
        """What ``dpvi.plan(covariates=...)`` has to declare to measure this regression."""
        return self.design.raw.counted_columns()

    def arrays(self, table: Any) -> dict[str, np.ndarray]:
        """Records for a run; those with a missing value, where the schema allows any, are left out."""
        found = self.read_schema.encode(table)
        whole = self._whole(found, self.columns)
        x = self.design.raw.matrix(found)
        y = self.response.leaf(np.asarray(found[self.response.name]))
        return {"x": x[whole].astype(np.float32), "y": (y if y.dtype.kind == "i" else y.astype(np.float32))[whole]}

    def rows(self, table: Any) -> np.ndarray:
        """Raw columns of rows to predict for, float64; a missing value is refused."""
        names = self.design.raw.names
        if not names:
            return np.ones((_length(table), 1))
        found = Schema({name: self.schema[name] for name in names}, self.schema.missing_markers).encode(table)
        if not np.all(self._whole(found, names)):
            raise FormulaError("A row to predict for holds a missing value; fill it, or leave the row out.")
        return self.design.raw.matrix(found)

    def _whole(self, found: Mapping[str, np.ndarray], names: Sequence[str]) -> Any:
        flags = [found[observed_leaf(name)] for name in names if self.schema[name].missing]
        return np.logical_and.reduce(flags) if flags else slice(None)

    def scaled_design(self, x: Any, numpy: Any) -> Any:
        """(X − c)/s."""
        centre, scale = (numpy.asarray(each, dtype=x.dtype) for each in (self.design.centre, self.design.scale))
        return (self.design.values(x, numpy) - centre * x[..., :1]) / scale

    def trials_of(self, x: Any, numpy: Any) -> Any:
        """Whole numbers of trials, within their bound."""
        assert self.trials is not None
        found = self.design.raw.number(x, self.trials, numpy, within=True)
        return numpy.rint(found).astype(numpy.result_type(int))

    @property
    def _offsets(self) -> tuple[str, ...]:
        return (*self.design.parsed.offsets, *(() if self.offset is None else (self.offset,)))

    def offset_of(self, x: Any, numpy: Any) -> Any:
        """The sum of all offsets, in units of the linear predictor."""
        total = 0 * x[..., 0]
        for offset in self._offsets:
            total = total + self.design.expression(offset, x, numpy)
        return total / self.response.unit

    def _offset_and_groups(self, x: Any) -> Any:
        linear = self.offset_of(x, jnp)
        for group in self.design.parsed.groups:
            levels = self.design.raw.places[group].levels or ()
            spread_prior, effects_prior = group_priors(len(levels))
            spread, effects = sample(f"sd_{group}", spread_prior), sample(f"effects_{group}", effects_prior)
            linear = linear + self.design.raw.indicators(x, group, jnp) @ (spread * effects)
        return linear

    def linear(self, x: np.ndarray, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        """η of rows ``x`` under draws of the parameters, (draws, rows), with NumPy."""
        count = len(next(iter(draws.values())))
        total = np.broadcast_to(self.offset_of(x, np), (count, len(x)))
        if self.has_intercept:
            total = total + draws["intercept"][:, None] * x[:, 0]
        if self.design.names:
            total = total + draws["weights"] @ self.scaled_design(x, np).T
        for group in self.design.parsed.groups:
            effects = draws[f"sd_{group}"][:, None] * draws[f"effects_{group}"]
            total = total + effects @ self.design.raw.indicators(x, group, np).T
        return total

    def further(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Draws of what the family has besides coefficients."""
        return {site: draws[site] for site in further_priors(self.response)}

    def prior_rows(self) -> list[tuple[str, str, str]]:
        """(parameter, prior on the declared scale, prior in own units)."""
        return described(self.design, self.response, self.priors)

    def recipe(self) -> dict[str, Any]:
        """Everything the model is made of, as JSON: formula, declarations of its columns, family and priors."""
        schema = self.read_schema.to_dict()
        schema["columns"] = {name: _plain(entries) for name, entries in schema["columns"].items()}
        content = {name: getattr(self, name) for name in _FIELDS}
        prior = {name: list(pair) for name, pair in self.prior.items()}
        return {"kind": KIND, "version": VERSION, **content, "schema": schema, "prior": prior}

    def _check_trials(self) -> None:
        if (self.family == "binomial") != (self.trials is not None):
            raise FormulaError("family='binomial' needs trials='name of a count column', and no other family has it.")
        if self.trials is None:
            return
        if not isinstance(self.schema[self.trials], Count):
            raise FormulaError(f"trials={self.trials!r} must be a count column.")


def model_of_recipe(recipe: Any) -> FormulaModel:
    """The model that :meth:`FormulaModel.recipe` describes; anything else is refused.

    A recipe is data. Its formula is read and never run, so one from a stranger can do no more than be refused.
    """
    if not isinstance(recipe, Mapping) or recipe.get("kind") != KIND or recipe.get("version") != VERSION:
        raise FormulaError(f"This is no recipe of kind {KIND!r} and version {VERSION}.")
    if set(recipe) != {"kind", "version", *_FIELDS}:
        raise FormulaError(f"A recipe of kind {KIND!r} has the entries {', '.join(_FIELDS)}.")
    texts = [recipe["formula"], recipe["family"], *(each for each in (recipe["trials"], recipe["offset"]) if each)]
    if not all(isinstance(text, str) for text in texts) or not isinstance(recipe["schema"], Mapping):
        raise FormulaError("A recipe holds its formula, family and columns as text.")
    content = dict(recipe["schema"])
    content["columns"] = {name: _typed(entries) for name, entries in dict(content["columns"]).items()}
    fields: dict[str, Any] = {name: recipe[name] for name in _FIELDS if name != "schema"}
    return FormulaModel(schema=Schema.from_dict(content), **fields)


def _plain(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each.isoformat() if isinstance(each, datetime.date) else each for name, each in entries.items()}


def _typed(entries: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(entries)
    if found.get("kind") == "date":
        found |= {name: datetime.date.fromisoformat(found[name]) for name in ("lower", "upper")}
    return found


def _quoted(name: str | None) -> str | None:
    return None if name is None else f"Q({name!r})"


def _length(table: Any) -> int:
    if isinstance(table, Mapping):
        return len(next(iter(table.values()), ()))
    return len(table)
