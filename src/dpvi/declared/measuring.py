"""How a measuring run divides its budget: a handful of sums over all records in place of many sampled steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpvi.declared import validation
from dpvi.declared.columns import Column, Constant

FEWEST_UNITS = 100


@dataclass(frozen=True)
class Measuring:
    """What histograms take of the budget (of the squared signal μ²), and how finely the rest may be divided.

    Everything that a run asks after its histograms is paid for in units. The noise of an answer that takes u of them
    has standard deviation σ/√u, as the mean of u answers to the same question would have, and costs as much as these. A
    run decides from what was released what it asks next and how many units that takes, but never takes more than there
    are.

    Parameters
    ----------
    covariate_share
        Of histograms of the declared columns, or of the number of records alone.
    units
        Of everything else.

    Examples
    --------
    >>> Measuring().units
    1000
    """

    covariate_share: float = 0.05
    units: int = 1000

    def __post_init__(self) -> None:
        share = validation.number("covariate_share", self.covariate_share)
        if not 0 < share < 1:
            raise ValueError(f"covariate_share must lie strictly between 0 and 1, got {share!r}.")
        units = validation.whole_number("units", self.units, FEWEST_UNITS)
        validation.keep(self, covariate_share=share, units=units)


def has_moments(columns: Iterable[Column] | None) -> bool:
    """Whether second moments of covariates say more than histograms do: where at least two columns vary."""
    return sum(column.width for column in columns or () if not isinstance(column, Constant)) >= 2
