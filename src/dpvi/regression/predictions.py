"""Predictions for rows of a table: the mean response with its interval, and where a new response will lie."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.models.formula import FormulaModel

_PART = 2**22  # numbers at a time


class Predictions(NamedTuple):
    """One row per row of the table; for an ordinal response one column per level, with probabilities.

    Attributes
    ----------
    estimate, lower, upper
        The mean response in own units (a probability, for a yes or no) and its interval: what is not known of the
        parameters, through sampling and through privacy.
    predictive_lower, predictive_upper
        Where a single new response lies; ``None`` for yes or no and for levels, where this says nothing.
    """

    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    predictive_lower: np.ndarray | None
    predictive_upper: np.ndarray | None
    probability: float
    label: str
    levels: tuple[Any, ...] = ()

    def to_dict(self) -> dict[str, np.ndarray]:
        """Arrays by name, those of levels one by one."""
        found: dict[str, np.ndarray] = {}
        for name in ("estimate", "lower", "upper", "predictive_lower", "predictive_upper"):
            values = getattr(self, name)
            if values is not None and self.levels:
                found |= {f"{name}[{level}]": values[:, index] for index, level in enumerate(self.levels)}
            elif values is not None:
                found[name] = values
        return found

    def to_pandas(self) -> Any:
        """A data frame with one row per row that was predicted for."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        columns = self.to_dict()
        widths = [max(10, len(name)) for name in columns]
        shown = min(len(self.estimate), 20)
        title = f"{self.label}: mean response with {100 * self.probability:g} % interval"
        lines = [title, "  ".join(name.rjust(width) for name, width in zip(columns, widths, strict=True))]
        for row in range(shown):
            cells = (f"{values[row]:.4g}".rjust(width) for values, width in zip(columns.values(), widths, strict=True))
            lines.append("  ".join(cells))
        if shown < len(self.estimate):
            lines.append("… more rows: to_pandas() has all")
        return "\n".join(lines)


def predicted(
    model: FormulaModel, x: np.ndarray, draws: dict[str, np.ndarray], probability: float, seed: int
) -> Predictions:
    """Predictions at raw columns ``x`` from draws of the parameters."""
    count = len(next(iter(draws.values())))
    step = max(1, _PART // count)
    parts = [_part(model, x[first : first + step], draws, probability, seed) for first in range(0, len(x), step)]
    joined = [None if part[0] is None else np.concatenate(part) for part in zip(*parts, strict=True)]
    estimate, lower, upper, below, above = joined
    assert estimate is not None
    assert lower is not None
    assert upper is not None
    levels = model.response.column.levels if model.family == "ordinal" else ()  # pyright: ignore[reportAttributeAccessIssue]
    return Predictions(estimate, lower, upper, below, above, probability, model.response.label, tuple(levels))


def mean_draws(model: FormulaModel, x: np.ndarray, draws: dict[str, np.ndarray]) -> np.ndarray:
    """Draws of the mean response, (draws, rows) or (draws, rows, levels)."""
    trials = None if model.trials is None else model.trials_of(x, np)
    return model.response.mean(model.linear(x, draws), model.further(draws), trials)


def response_draws(model: FormulaModel, x: np.ndarray, draws: dict[str, np.ndarray], seed: int) -> np.ndarray:
    """Draws of a new response for each row, (draws, rows), in own units; levels as positions."""
    trials = None if model.trials is None else jnp.asarray(model.trials_of(x, np))
    linear = jnp.asarray(model.linear(x, draws), jnp.float32)
    further = {site: jnp.asarray(values, jnp.float32) for site, values in model.further(draws).items()}
    further = {site: values[:, None] for site, values in further.items()}
    with jax.numpy_dtype_promotion("standard"):
        leaf = model.response.law(linear, further, trials).sample(jax.random.key(seed))
    return np.asarray(model.response.own(np.asarray(leaf, np.float64)))


def _part(
    model: FormulaModel, x: np.ndarray, draws: dict[str, np.ndarray], probability: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    ends = [(1 - probability) / 2, (1 + probability) / 2]
    means = mean_draws(model, x, draws)
    lower, upper = np.quantile(means, ends, axis=0)
    if model.family in ("bernoulli", "ordinal"):
        return means.mean(axis=0), lower, upper, None, None
    below, above = np.quantile(response_draws(model, x, draws, seed), ends, axis=0)
    return means.mean(axis=0), lower, upper, below, above
