"""One answer from many data sets: combining rules for synthetic and for multiply imputed data.

From data set m = 1, …, M an analyst has an estimate q_m and its variance u_m. With q̄ the mean of the estimates, B their
sample variance and U the mean of the u_m:

==============  =======================  ====================================  =========================================
rule            total variance T         degrees of freedom                    for
==============  =======================  ====================================  =========================================
``synthetic``   (1 + 1/M) B − U          (M − 1)(1 − U/((1 + 1/M) B))²         every record drawn from a posterior
                                                                               predictive distribution
``large``       (1 + 1/M) B              M − 1                                 the same, with data sets so much larger
                                                                               than the original that U is negligible
``imputation``  U + (1 + 1/M) B          (M − 1)(1 + U/((1 + 1/M) B))²         the original records, with gaps filled M
                                                                               times
==============  =======================  ====================================  =========================================

Which one, and why. :func:`~dpvi.synthetic.synthesize` draws parameters θ_m from the posterior and then ``num_records``
records given θ_m. For an estimand Q(θ),

    Var(q_m | release) = Var(Q | release) + E[u_m]

because q_m scatters around Q(θ_m) with variance u_m, so Var(Q | release) is B − U, and with the error of q̄ added it is
T as in ``synthetic`` (Raghunathan, Reiter and Rubin 2003). It holds for any ``num_records``, but T is a difference of
two estimates: with few records per set U is close to B and T unsteady or negative. Larger sets make U vanish, and
``large`` becomes right; at the size of the original it is too wide by U. ``imputation`` adds U instead of subtracting
it and is too wide by 2U for synthetic data: it treats each set as if it held the original sample. The same happens to
an analyst who mixes the posteriors of the synthetic sets (Räisä, Jälkö and Honkela 2023): those need sets much larger
than the original. All of them rest on the posterior being right: intervals from a posterior that ignores the privacy
noise are too narrow, whatever the rule.

References
----------
Raghunathan, Reiter and Rubin (2003), Multiple imputation for statistical disclosure limitation.
Reiter (2002), Satisfying disclosure restrictions with synthetic data sets.
Reiter and Raghunathan (2007), The multiple adaptations of multiple imputation.
Rubin (1987), Multiple imputation for nonresponse in surveys.
Räisä, Jälkö, Kaski and Honkela (2023), Noise-aware statistical inference with differentially private synthetic data.
Räisä, Jälkö and Honkela (2023), On consistent Bayesian inference from synthetic data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

RULES = ("synthetic", "large", "imputation")


class Pooled(NamedTuple):
    """Combined estimates, one entry per quantity; prints as a table.

    Attributes
    ----------
    names
        Names of the quantities.
    estimate
        q̄.
    total_variance
        T, or its replacement where ``fell_back``.
    degrees_of_freedom
        Of the t distribution of (Q − q̄)/√T.
    between, within
        B and U.
    fell_back
        Where (1 + 1/M) B − U was not positive and another variance took its place.
    num_datasets, rule
        M and the rule used.
    """

    names: tuple[str, ...]
    estimate: np.ndarray
    total_variance: np.ndarray
    degrees_of_freedom: np.ndarray
    between: np.ndarray
    within: np.ndarray
    fell_back: np.ndarray
    num_datasets: int
    rule: str

    @property
    def standard_error(self) -> np.ndarray:
        """√T."""
        return np.sqrt(self.total_variance)

    def interval(self, probability: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the central intervals q̄ ∓ t √T."""
        if not 0 < probability < 1:
            raise ValueError(f"probability must lie strictly between 0 and 1, got {probability!r}.")
        half = scipy.stats.t.ppf((1 + probability) / 2, self.degrees_of_freedom) * self.standard_error
        return self.estimate - half, self.estimate + half

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lower, upper = self.interval()
        width = max(len("quantity"), *map(len, self.names))
        lines = [f"{'quantity':<{width}}  {'estimate':>10}  {'s.e.':>10}  {'df':>8}  {'95 % interval':>24}"]
        rows = zip(self.names, self.estimate, self.standard_error, self.degrees_of_freedom, lower, upper, strict=True)
        for (name, q, se, df, low, high), fell_back in zip(rows, self.fell_back, strict=True):
            mark = "  T was not positive" if fell_back else ""
            lines.append(f"{name:<{width}}  {q:>10.4g}  {se:>10.4g}  {df:>8.3g}  [{low:>10.4g}, {high:>10.4g}]{mark}")
        return "\n".join(lines)


def pool(
    estimates: Any,
    variances: Any,
    *,
    rule: str = "synthetic",
    size_ratio: float | None = None,
    names: Sequence[str] | None = None,
) -> Pooled:
    """Combine the estimates of several data sets.

    Parameters
    ----------
    estimates
        q_m, one row per data set: (M,) or (M, quantities). M must be at least 2.
    variances
        u_m, squared standard errors, of the same shape.
    rule
        ``"synthetic"``, ``"large"`` or ``"imputation"``; see the table of the module.
    size_ratio
        What replaces a T that is not positive under ``"synthetic"``. By default U + (1 + 1/M) B, which needs to know
        nothing and is too wide. With the ratio of synthetic to original records, where that is public, Reiter's (2002)
        ``size_ratio`` · U.
    names
        Names of the quantities.

    Returns
    -------
    Pooled
        One entry per quantity.

    Examples
    --------
    >>> pooled = pool([1.0, 2.0, 3.0], [0.25, 0.25, 0.25])
    >>> pooled.estimate.round(3), pooled.total_variance.round(3), pooled.degrees_of_freedom.round(3)
    (array([2.]), array([1.083]), array([1.32]))
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(map(repr, RULES))}, got {rule!r}.")
    q, u = _checked(estimates, variances)
    labels = tuple(names) if names is not None else tuple(f"quantity {i}" for i in range(q.shape[1]))
    if len(labels) != q.shape[1]:
        raise ValueError(f"names must name each of the {q.shape[1]} quantities, got {len(labels)}.")
    num_datasets = len(q)
    between, within = q.var(axis=0, ddof=1), u.mean(axis=0)
    spread = (1 + 1 / num_datasets) * between
    total, freedom, fell_back = _total(rule, spread, within, num_datasets - 1, size_ratio)
    return Pooled(labels, q.mean(axis=0), total, freedom, between, within, fell_back, num_datasets, rule)


def _total(
    rule: str, spread: np.ndarray, within: np.ndarray, freedom: int, size_ratio: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """T, its degrees of freedom, and where T had to be replaced; ``spread`` is (1 + 1/M) B."""
    never = np.zeros(spread.shape, dtype=bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(spread > 0, within / spread, np.where(within > 0, np.inf, 0.0))
    sum_freedom = freedom * (1 + ratio) ** 2
    if rule == "large":
        return spread, np.full(spread.shape, float(freedom)), never
    if rule == "imputation":
        return spread + within, sum_freedom, never
    fell_back = (spread - within <= 0) & (within > 0)
    fallback = spread + within if size_ratio is None else _ratio(size_ratio) * within
    total = np.where(fell_back, fallback, spread - within)
    # Near T = 0 the formula goes to zero degrees, where a t distribution has no width to speak of.
    difference_freedom = np.maximum(freedom * (1 - np.minimum(ratio, 1.0)) ** 2, 1.0)
    return total, np.where(fell_back, sum_freedom, difference_freedom), fell_back


def _ratio(size_ratio: float) -> float:
    if not (np.isfinite(size_ratio) and size_ratio > 0):
        raise ValueError(f"size_ratio must be synthetic over original records, a positive number, got {size_ratio!r}.")
    return float(size_ratio)


def _checked(estimates: Any, variances: Any) -> tuple[np.ndarray, np.ndarray]:
    q, u = np.asarray(estimates, np.float64), np.asarray(variances, np.float64)
    if q.shape != u.shape or q.ndim not in (1, 2) or len(q) < 2:
        raise ValueError(
            "estimates and variances must have one row for each of at least two data sets and equal shapes, "
            f"got {q.shape} and {u.shape}."
        )
    q, u = (a[:, None] if a.ndim == 1 else a for a in (q, u))
    if not (np.isfinite(q).all() and np.isfinite(u).all() and (u >= 0).all()):
        raise ValueError("estimates must be finite and variances finite and not negative; drop failed fits first.")
    return q, u
