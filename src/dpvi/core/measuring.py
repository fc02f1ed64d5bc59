"""How a measuring run divides its budget: a handful of sums over all records in place of many sampled steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpvi.core import validation
from dpvi.core.columns import Column, Constant

_SHARES = ("covariate_share", "moment_share", "curvature_share", "norm_share")
_FEWEST = {"curvature_units": 2, "score_units": 6}  # two looks, six blocks
_UNITS = ("moment_units", "curvature_units", "norm_units", "score_units")


@dataclass(frozen=True)
class Measuring:
    """Shares of the budget (of the squared signal μ²) and how finely a run may divide each of them.

    A kind of release is paid for in units. The noise of an answer that takes u of them has standard deviation σ/√u, as
    the mean of u answers to the same question would have, and costs as much as these. A run decides from what was
    released how many units the next answer takes, but never takes more of a kind than there are.

    Parameters
    ----------
    covariate_share
        Of histograms of the declared columns, or of the number of records alone.
    moment_share, moment_units
        Of second moments of covariates. Where fewer than two columns vary there is nothing to ask, and the scores get
        the share.
    curvature_share, curvature_units
        Of the curvature of the log likelihood at the answer.
    norm_share, norm_units
        Of counts of records by the length of their scores.
    score_units
        Of sums of scores, which get what is left.

    Examples
    --------
    >>> round(Measuring().score_share, 2)
    0.65
    """

    covariate_share: float = 0.05
    moment_share: float = 0.06
    curvature_share: float = 0.12
    norm_share: float = 0.12
    moment_units: int = 14
    curvature_units: int = 12
    norm_units: int = 4
    score_units: int = 64

    def __post_init__(self) -> None:
        shares = {name: validation.number(name, getattr(self, name)) for name in _SHARES}
        for name, share in shares.items():
            if not 0 < share < 1:
                raise ValueError(f"{name} must lie strictly between 0 and 1, got {share!r}.")
        if not sum(shares.values()) < 1:
            raise ValueError(f"The shares {', '.join(_SHARES)} must leave something to the scores, got {shares}.")
        units = {name: validation.whole_number(name, getattr(self, name), _FEWEST.get(name, 1)) for name in _UNITS}
        validation.keep(self, **shares, **units)

    @property
    def score_share(self) -> float:
        """What is left to the scores where every other kind is released."""
        return 1 - sum(getattr(self, name) for name in _SHARES)


def has_moments(columns: Iterable[Column] | None) -> bool:
    """Whether second moments of covariates say more than histograms do: where at least two columns vary."""
    return sum(column.width for column in columns or () if not isinstance(column, Constant)) >= 2
