"""What ``dpvi.glm`` returns: a regression that can be read, asked for predictions, drawn, saved and loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpvi.declared.guarantee import Guarantee
from dpvi.models.formula import FormulaModel
from dpvi.models.formula.families import LINKS
from dpvi.posterior import Posterior, Result
from dpvi.regression.checks import PredictiveCheck, predictive_check
from dpvi.regression.draws import drawn, in_own_units, on_declared_scale, privacy_only
from dpvi.regression.predictions import Predictions, predicted
from dpvi.regression.prior_summary import PriorTable
from dpvi.regression.summary import CoefficientTable, table_of

_DRAWS = 10_000
_PREDICTED = 1000
UNITS = ("own", "declared")


@dataclass(frozen=True, eq=False, repr=False)
class RegressionResult:
    """A private regression.

    Attributes
    ----------
    result
        Everything that was released, a :class:`dpvi.Result`.
    model
        The formula, the declarations and the family, which the result's file holds, too.

    Guarantees
    ----------
    Everything here is computed from ``result`` alone, and may be published as it may.
    """

    result: Result
    model: FormulaModel

    @property
    def guarantee(self) -> Guarantee:
        """What the run promises."""
        return self.result.guarantee

    @property
    def formula(self) -> str:
        return self.model.formula

    @property
    def family(self) -> str:
        return self.model.family

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior of the parameters on the declared scale."""
        return self.result.posterior()

    def __repr__(self) -> str:
        return f"RegressionResult({self.formula!r}, family={self.family!r})\n{self.guarantee}"

    def summary(self, probability: float = 0.95, *, units: str = "own", levels: bool = False) -> CoefficientTable:
        """Estimate, standard deviation, interval and its parts for every coefficient.

        Parameters
        ----------
        probability
            Of the central intervals.
        units
            ``"own"``: per unit of the columns as they stand in the table. ``"declared"``: per quarter of each column's
            declared range, as priors are stated.
        levels
            Show the intercept of every level of a varying intercept, too.
        """
        _check_probability(probability)
        if units not in UNITS:
            raise ValueError(f"units must be one of {', '.join(map(repr, UNITS))}, got {units!r}.")

        def named(draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            if units == "declared":
                return on_declared_scale(self.model, draws)
            return in_own_units(self.model, draws, levels=levels)

        alone = privacy_only(self.posterior, _DRAWS)
        privacy = None if alone is None else named(alone)
        return table_of(named(self._draws), privacy, probability, self._head, self._notes)

    def prior_summary(self) -> PriorTable:
        """The prior of every parameter, on the declared scale and in own units."""
        return PriorTable(tuple(self.model.prior_rows()))

    def predict(self, table: Any, probability: float = 0.95, *, seed: int = 0) -> Predictions:
        """The mean response of each row of ``table`` with its interval, and where a new response will lie.

        Parameters
        ----------
        table
            Rows with the predictors: a data frame, a mapping of columns or a file, as :func:`dpvi.glm` takes it. A
            level that is not declared is refused, a number beyond its bounds counts as the bound.
        probability
            Of the intervals.
        seed
            Of the draws of new responses.
        """
        _check_probability(probability)
        rows = self.model.rows(table)
        return predicted(self.model, rows, self.draws(), probability, seed)

    def adjusted_predictions(self, variable: str, values: Any = None, **settings: Any) -> Any:
        """The mean response by ``variable``: see :func:`~dpvi.regression.comparisons.adjusted_predictions`."""
        from dpvi.regression.comparisons import adjusted_predictions

        return adjusted_predictions(self, variable, values, **settings)

    def comparisons(self, variable: str, between: Any = None, **settings: Any) -> Any:
        """How the response changes with ``variable``: see :func:`~dpvi.regression.comparisons.comparisons`."""
        from dpvi.regression.comparisons import comparisons

        return comparisons(self, variable, between, **settings)

    def plot_coefficients(self, probability: float = 0.95) -> Any:
        """A figure of all coefficients; the thick part of a line is what the model is unsure of without privacy."""
        from dpvi.regression.plots import plot_coefficients

        return plot_coefficients(self.summary(probability))

    def plot_predictions(self, variable: str, values: Any = None, **settings: Any) -> Any:
        """A figure of :meth:`adjusted_predictions`."""
        from dpvi.regression.plots import plot_effects

        return plot_effects(self.adjusted_predictions(variable, values, **settings))

    def plot_comparisons(self, variable: str, between: Any = None, **settings: Any) -> Any:
        """A figure of :meth:`comparisons`."""
        from dpvi.regression.plots import plot_effects

        return plot_effects(self.comparisons(variable, between, **settings))

    def check(self) -> PredictiveCheck:
        """Whether what was released contradicts the model: see :mod:`dpvi.regression.checks`."""
        return predictive_check(self.result, self.posterior.distribution, self._notes)

    def draws(self, count: int = _PREDICTED) -> dict[str, np.ndarray]:
        """At most 10,000 draws of all parameters on the declared scale, always the same."""
        return {name: values[:count] for name, values in self._draws.items()}

    def loo(self) -> Any:
        """Refused: leave-one-out needs each record again."""
        raise NotImplementedError(
            "Leave-one-out scores need every record once more, one by one, and this result holds none; a further "
            "release would have to pay for them. Compare models on data that were kept apart."
        )

    waic = loo

    def report(self, path: str | Path, **contents: Any) -> Path:
        """Write one self-contained HTML page: guarantee, priors, coefficients, predictions, checks.

        ``contents`` are further entries of :class:`dpvi.reporting.Contents`, such as ``title``.
        """
        from dpvi.regression.page import write_regression_page

        return write_regression_page(self, path, **contents)

    def save(self, path: str | Path) -> None:
        """Write one file with everything that was released and the recipe of the model; :func:`load` reads it."""
        self.result.save(path)

    @cached_property
    def _draws(self) -> dict[str, np.ndarray]:
        return drawn(self.posterior, _DRAWS)

    @property
    def _head(self) -> tuple[str, ...]:
        head = [self.guarantee.warning] if self.guarantee.warning else []
        head.append(f"{self.formula}")
        head.append(f"family {self.family}, link {LINKS[self.family]}, of {self.model.response.label}")
        if self.guarantee.private:
            promised = self.guarantee
            head.append(f"({promised.epsilon:g}, {promised.delta:g})-differential privacy, by {promised.change}")
        return tuple(head)

    @property
    def _notes(self) -> tuple[str, ...]:
        posterior, notes = self.posterior, []
        gaps = [name for name in self.model.columns if self.model.schema[name].missing]
        if gaps:
            notes.append(f"Records with a missing value of {', '.join(gaps)} are left out.")
        notes += [*posterior.notes, getattr(posterior.distribution, "caveat", "")]
        return tuple(filter(None, notes))


def load(path: str | Path, *, verify_key: Any = None) -> RegressionResult:
    """Read a regression back from the file that :meth:`RegressionResult.save` wrote.

    The file holds formula, declarations, family and priors as data, and the model is made of these again. Nothing in
    it is executed.

    Parameters
    ----------
    path
        The file.
    verify_key
        An Ed25519 public key, as :meth:`dpvi.Result.load` takes it.
    """
    return regression_of(Result.load(path, verify_key=verify_key), str(path))


def regression_of(result: Result, name: str = "This result") -> RegressionResult:
    """The regression that a result is of; one of another model is refused."""
    function = getattr(result.model, "function", None)
    if isinstance(function, FormulaModel):
        return RegressionResult(result, function)
    if result.recipe is not None:
        raise ImportError(f"{name} is a regression, and its formula is read by formulaic: install dpvi[glm].")
    raise ValueError(f"{name} is not a regression from a formula; read it with dpvi.Result.load(path, model=...).")


def _check_probability(probability: float) -> None:
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie strictly between 0 and 1, got {probability!r}.")
