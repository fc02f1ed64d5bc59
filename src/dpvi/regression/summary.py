"""The table of a regression, as statistical packages print it: estimates, intervals and the two parts of these."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class CoefficientTable(NamedTuple):
    """One row per parameter; prints as a table.

    Attributes
    ----------
    names
        Names of coefficients as the formula makes them, then of what the family has besides.
    estimate, sd, lower, upper
        Posterior mean, standard deviation and central interval.
    sampling_sd, privacy_sd
        The parts of ``sd``: what the same model is unsure of without privacy, and what privacy added. Their squares add
        up to the square of ``sd``. ``None`` where a posterior does not tell them apart.
    """

    names: tuple[str, ...]
    estimate: np.ndarray
    sd: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability: float
    sampling_sd: np.ndarray | None = None
    privacy_sd: np.ndarray | None = None
    head: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, dict[str, float]]:
        """``{name: {"estimate": …, "sd": …, "lower": …, "upper": …, "sampling_sd": …, "privacy_sd": …}}``."""
        return {
            name: {column: float(values[index]) for column, values in self._columns().items()}
            for index, name in enumerate(self.names)
        }

    def to_pandas(self) -> Any:
        """A data frame with one row per parameter."""
        import pandas

        return pandas.DataFrame(self._columns(), index=pandas.Index(self.names, name="parameter"))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return "\n".join([*self.head, *self._lines(), *self.notes])

    def _columns(self) -> dict[str, np.ndarray]:
        columns: dict[str, Any] = {
            "estimate": self.estimate,
            "sd": self.sd,
            "lower": self.lower,
            "upper": self.upper,
            "sampling_sd": self.sampling_sd,
            "privacy_sd": self.privacy_sd,
        }
        return {name: values for name, values in columns.items() if values is not None}

    def _lines(self) -> list[str]:
        width = max([len("parameter"), *map(len, self.names)])
        parts = [part for part in (self.sampling_sd, self.privacy_sd) if part is not None]
        heads = "".join(f"  {name:>10}" for name in ("sampling", "privacy")[: len(parts)])
        level = f"{100 * self.probability:g} % interval"
        rule = "-" * (width + 2 + 10 + 2 + 10 + 2 + 24 + 12 * len(parts))
        lines = [rule, f"{'parameter':<{width}}  {'estimate':>10}  {'sd':>10}  {level:>24}{heads}", rule]
        for i, name in enumerate(self.names):
            tail = "".join(f"  {part[i]:>10.4g}" for part in parts)
            lines.append(
                f"{name:<{width}}  {self.estimate[i]:>10.4g}  {self.sd[i]:>10.4g}  "
                f"[{self.lower[i]:>10.4g}, {self.upper[i]:>10.4g}]{tail}"
            )
        return [*lines, rule]


def table_of(
    draws: dict[str, np.ndarray],
    privacy: dict[str, np.ndarray] | None,
    probability: float,
    head: tuple[str, ...],
    notes: tuple[str, ...],
) -> CoefficientTable:
    """Summaries of named draws, with the parts of their spread where draws of the privacy part are there."""
    flat = np.stack(list(draws.values()), axis=1)
    lower, upper = np.quantile(flat, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
    sd, parts = flat.std(axis=0), (None, None)
    if privacy is not None:
        added = np.minimum(np.stack([privacy[name] for name in draws], axis=1).std(axis=0), sd)
        parts = np.sqrt(sd**2 - added**2), added
    return CoefficientTable(tuple(draws), flat.mean(axis=0), sd, lower, upper, probability, *parts, head, notes)
