"""What is assumed of records nobody has seen yet: marginals, how columns go together, and effects.

Everything is public: the declarations, and what someone who has not looked at the records thinks of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from dpvi.models.formula import FormulaError, FormulaModel
from dpvi.models.formula.families import LINKS
from dpvi.models.formula.priors import INTERCEPT, further_priors
from dpvi.models.formula.raw_columns import bounds_of
from dpvi.table import Boolean, Column, Count, Leveled, observed_leaf

_SIGMAS = 6.0  # standard deviations that declared bounds are thought to be apart
_MEDIANS = {"sigma": float(np.exp(-1.0)), "concentration": 1.0, "shape": 1.0}
_GROUP_SPREAD = 0.5
_ROWS = 20_000  # from which an intercept is found


@dataclass(frozen=True)
class AssumedLaw:
    """A law of records, for a simulation.

    Parameters
    ----------
    model
        The regression.
    marginals
        ``{column: …}``: ``(mean, standard deviation)`` of a number, a list of three or more quantiles at equal steps
        from the smallest to the largest, ``{value: probability}``, or the probability of a boolean. The response may be
        among them.
    correlation
        ``{(column, column): r}`` between normal scores; levels count in their declared order.
    effects
        ``{coefficient: value}`` per unit of the column; also ``"Intercept"``, ``"sigma"`` and the like.
    """

    model: FormulaModel
    marginals: Mapping[str, Any] = field(default_factory=dict)
    correlation: Mapping[tuple[str, str], float] = field(default_factory=dict)
    effects: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = set(self.model.columns)
        unknown = sorted({*self.marginals, *(name for pair in self.correlation for name in pair)} - known)
        if unknown:
            raise FormulaError(
                f"marginals and correlation name {', '.join(map(repr, unknown))}, but the formula reads "
                f"{', '.join(map(repr, self.model.columns))}."
            )
        groups = (f"sd(1 | {group})" for group in self.model.design.parsed.groups)
        names = {INTERCEPT, *self.model.design.names, *_FURTHER_NAMES, *groups}
        wrong = sorted(self.effects.keys() - names)
        if wrong:
            raise FormulaError(
                f"effects name {', '.join(map(repr, wrong))}, but there are {', '.join(map(repr, sorted(names)))}."
            )

    def covariates(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Raw columns of ``count`` simulated records."""
        names = list(self.model.design.raw.names)
        if not names:
            return np.ones((count, 1))
        level = scipy.stats.norm.cdf(random.normal(size=(count, len(names))) @ self._root(names).T)
        table = {
            name: _quantile(name, self.model.schema[name], self.marginals.get(name), level[:, place])
            for place, name in enumerate(names)
        }
        return self.model.design.raw.matrix(self._encoded(table))

    def records(self, count: int, seed: int) -> dict[str, np.ndarray]:
        """``count`` simulated records, as the model takes them."""
        x = self.covariates(count, np.random.default_rng(seed))
        draws = self.parameters(seed)
        trials = None if self.model.trials is None else jnp.asarray(self.model.trials_of(x, np))
        linear = jnp.asarray(self.model.linear(x, draws)[0], jnp.float32)
        further = {site: jnp.asarray(value[0], jnp.float32) for site, value in self.model.further(draws).items()}
        with jax.numpy_dtype_promotion("standard"):
            y = np.asarray(self.model.response.law(linear, further, trials).sample(jax.random.key(seed)))
        return {"x": x.astype(np.float32), "y": self._within_bounds(y)}

    def parameters(self, seed: int) -> dict[str, np.ndarray]:
        """The assumed parameters by site, with a leading axis of one."""
        model, unit = self.model, self.model.response.unit
        weights = np.array([self.effects.get(name, 0.0) for name in model.design.names]) * model.design.scale / unit
        found = {"weights": weights[None]} if model.design.names else {}
        if model.has_intercept:
            found["intercept"] = np.array([model.priors.intercept[0]])
        random = np.random.default_rng([seed, 1])
        for group in model.design.parsed.groups:
            levels = model.design.raw.places[group].levels or ()
            found[f"sd_{group}"] = np.array([self.effects.get(f"sd(1 | {group})", _GROUP_SPREAD * unit) / unit])
            found[f"effects_{group}"] = random.normal(size=(1, len(levels)))
        for site in further_priors(model.response):
            found[site] = self._further(site)
        return self._with_level(found)

    def _further(self, site: str) -> np.ndarray:
        if site == "cutpoints":
            column: Any = self.model.response.column
            given = self.marginals.get(self.model.response.name)
            shares = np.array([_share(given, level, column.num_levels) for level in column.levels])
            below = np.cumsum(shares / shares.sum())[:-1]
            return np.log(below / (1 - below))[None]
        scale = self.model.response.unit if site == "sigma" else 1.0
        return np.array([self.effects[site] / scale if site in self.effects else _MEDIANS[site]])

    def _with_level(self, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The intercept, and the family's spread, that give the response the mean and deviation assumed of it."""
        model, response = self.model, self.model.response
        wanted = self.marginals.get(response.name)
        if not model.has_intercept or (wanted is None and INTERCEPT not in self.effects):
            return found
        if INTERCEPT in self.effects:
            own = (self.effects[INTERCEPT] - response.middle) / response.unit
            shift = float(found["weights"][0] @ (model.design.centre / model.design.scale)) if "weights" in found else 0
            return found | {"intercept": np.array([own + shift])}
        mean, deviation = _mean_and_deviation(wanted, response)
        x = self.covariates(_ROWS, np.random.default_rng(0))
        trials = None if model.trials is None else model.trials_of(x, np)
        if deviation is not None:
            found = found | _spread(response, mean, deviation, model.linear(x, found)[0])

        def level(intercept: float) -> float:
            linear = model.linear(x, found | {"intercept": np.array([intercept])})
            return float(np.mean(response.mean(linear, model.further(found), trials)))

        low, high = -40.0, 40.0
        target = mean if trials is None else mean * float(np.mean(trials))
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if level(middle) < target else (low, middle)
        return found | {"intercept": np.array([(low + high) / 2])}

    def _within_bounds(self, y: np.ndarray) -> np.ndarray:
        """Responses as encoding would clamp them."""
        response, column = self.model.response, self.model.response.column
        if LINKS[response.family] == "identity":
            return np.clip(y, -1, 1).astype(np.float32)
        if response.family == "gamma":
            lower, upper = bounds_of(response.name, column)
            return np.clip(y, lower / upper, 1).astype(np.float32)
        return np.clip(y, 0, column.upper).astype(np.int32) if isinstance(column, Count) else y.astype(np.int32)

    def _encoded(self, table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        encoded = {}
        for name, values in table.items():
            encoded[name] = self.model.schema[name].encode(name, values, strict=False)
            encoded[observed_leaf(name)] = np.ones(len(values), bool)
        return encoded

    def _root(self, names: list[str]) -> np.ndarray:
        matrix = np.eye(len(names))
        for (left, right), value in self.correlation.items():
            if left in names and right in names:
                row, column = names.index(left), names.index(right)
                matrix[row, column] = matrix[column, row] = float(value)
        values, vectors = np.linalg.eigh(matrix)
        if values.min() < -1e-6 or np.abs(matrix).max() > 1:
            raise FormulaError("The correlations contradict each other; no columns can have all of them.")
        return vectors * np.sqrt(np.maximum(values, 0))


_FURTHER_NAMES = tuple(_MEDIANS)


def _quantile(name: str, column: Column, given: Any, level: np.ndarray) -> np.ndarray:
    """Values of a column at probabilities ``level``, in own units."""
    if isinstance(column, Leveled):
        shares = np.array([_share(given, value, column.num_levels) for value in column.levels])
        places = np.searchsorted(np.cumsum(shares / shares.sum())[:-1], level)
        return np.array(column.levels, dtype=object)[places]
    if isinstance(column, Boolean):
        share = 0.5 if given is None else _share(given, True, 2) if isinstance(given, Mapping) else float(given)
        return level > 1 - share
    lower, upper = bounds_of(name, column)
    if isinstance(given, Mapping):
        values = np.array(sorted(given), dtype=np.float64)
        shares = np.array([given[value] for value in sorted(given)], np.float64)
        found = values[np.searchsorted(np.cumsum(shares / shares.sum())[:-1], level)]
    elif given is not None and len(given) > 2:
        found = np.interp(level, np.linspace(0, 1, len(given)), np.asarray(given, np.float64))
    else:
        mean, deviation = given if given is not None else ((lower + upper) / 2, (upper - lower) / _SIGMAS)
        found = float(mean) + float(deviation) * scipy.stats.norm.ppf(np.clip(level, 1e-12, 1 - 1e-12))
    found = np.clip(found, lower, upper)
    if column.kind != "date":
        return found
    return np.datetime64(getattr(column, "lower")) + np.rint(found).astype(np.int64)  # noqa: B009


def _share(given: Any, level: Any, count: int) -> float:
    if given is None:
        return 1 / count
    if not isinstance(given, Mapping):
        raise FormulaError("The marginal of a column with levels is {level: probability} for each of them.")
    return max(float(given.get(level, 0.0)), 1e-9)


def _mean_and_deviation(given: Any, response: Any) -> tuple[float, float | None]:
    """Mean and standard deviation that a marginal says of the response."""
    if isinstance(given, Mapping):
        if response.family == "bernoulli":
            levels = response.column.levels if isinstance(response.column, Leveled) else (False, True)
            shares = [_share(given, level, 2) for level in levels]
            return shares[1] / sum(shares), None
        values, shares = np.array(list(given), np.float64), np.array(list(given.values()), np.float64)
        mean = float(values @ shares / shares.sum())
        return mean, float(np.sqrt((values - mean) ** 2 @ shares / shares.sum()))
    if np.ndim(given) == 0:
        return float(given), None
    if len(given) == 2:
        return float(given[0]), float(given[1])
    values = np.interp(np.linspace(0, 1, 1001), np.linspace(0, 1, len(given)), np.asarray(given, np.float64))
    return float(values.mean()), float(values.std())


def _spread(response: Any, mean: float, deviation: float, linear: np.ndarray) -> dict[str, np.ndarray]:
    """What the family has besides coefficients, from the deviation of the response."""
    match response.family:
        case "gaussian" | "student_t":
            whole = (deviation / response.unit) ** 2
            return {"sigma": np.array([np.sqrt(max(whole - float(np.var(linear)), whole / 400))])}
        case "negative_binomial":
            return {"concentration": np.array([mean**2 / max(deviation**2 - mean, 0.01 * mean)])}
        case "gamma":
            return {"shape": np.array([(mean / deviation) ** 2])}
    return {}
