"""TARP: expected coverage of credible balls around random points (Lemos et al. 2023, as used by NA-DPVI, appendix H.4).

Draw (θ, data) from the model K times, compute K posteriors, and choose for each a reference point that does not depend
on θ. The share of posterior draws closer to that point than θ is uniform on [0, 1] when the posterior is right, for any
reference point, and this is the only posterior for which that holds. A finite K never gives exact uniformity:
:func:`perfect_rmse` is the error which a perfect posterior shows, and the number to compare with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

LEVELS = np.concatenate([[0.001], np.arange(1, 20) / 20, [0.999]])
"""The 21 credible levels of the NA-DPVI experiments; the set is its own mirror image, so levels are α or 1 − α."""

_BLOCK = 2**22  # floats held at once while distances are compared


class Estimate(NamedTuple):
    """A mean and a standard deviation over repeats; the latter is NaN for a single repeat."""

    mean: Any
    std: Any

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.std:.4f}"


class TarpCoverage(NamedTuple):
    """Coverage of K posteriors under R draws of reference points; with ``marginal=True`` a last axis of d parameters.

    Attributes
    ----------
    levels
        Nominal levels 1 − α, (L,).
    coverage
        Share of posteriors whose credible ball of each level holds the truth, (R, L) or (R, L, d).
    ranks
        The fractions f, (R, K) or (R, K, d).
    num_dropped
        Posteriors left out because they were not finite; 0 unless asked for with ``nonfinite="drop"``.
    """

    levels: np.ndarray
    coverage: np.ndarray
    ranks: np.ndarray
    num_dropped: int

    @property
    def num_posteriors(self) -> int:
        """K, without those left out."""
        return self.ranks.shape[1]

    @property
    def mean(self) -> np.ndarray:
        """Mean coverage over repeats, (L,) or (L, d)."""
        return self.coverage.mean(axis=0)

    @property
    def std(self) -> np.ndarray:
        """Standard deviation over repeats. It knows nothing of the posteriors being a sample of K."""
        return _std(self.coverage)

    @property
    def rmse(self) -> Estimate:
        """RMSE of each repeat, then mean and standard deviation over repeats: floats, or (d,) each."""
        errors = coverage_rmse(self.coverage, self.levels)
        if errors.ndim == 1:
            return Estimate(float(errors.mean()), float(_std(errors)))
        return Estimate(errors.mean(axis=0), _std(errors))


def tarp(
    samples: Any,
    truths: Any,
    references: Any = None,
    levels: Any = None,
    *,
    rng: np.random.Generator | None = None,
    marginal: bool = False,
    centre: Any = None,
    span: float = 4.0,
    num_repeats: int = 20,
    nonfinite: str = "raise",
) -> TarpCoverage:
    """Coverage of posteriors, jointly or parameter by parameter.

    With θ_k = ``truths[k]``, draws x_ks = ``samples[k, s]``, a reference point r_k and Euclidean distance:
    f_k = (1/S) Σ_s 1[‖x_ks − r_k‖ < ‖θ_k − r_k‖] and C(level) = (1/K) Σ_k 1[f_k < level] (equations A62, A63).
    Distances are not scaled: parameters with wide posteriors dominate the joint test. Pass unconstrained parameters, or
    ones you have scaled by public constants.

    Parameters
    ----------
    samples
        Posterior draws, (K, S, d). With S draws f moves in steps of 1/S; take a thousand or more.
    truths
        The parameters that generated the data, (K, d).
    references
        Reference points, (K, d) or (R, K, d). Drawn if absent: r_ki = centre_ki + U(−a, a), a = ``span`` · sd_ki, with
        sd the standard deviation of the posterior's draws.
    levels
        Increasing levels in (0, 1); :data:`LEVELS` if absent.
    rng
        Generator of reference points; needed unless ``references`` are given.
    marginal
        Test each parameter alone, by absolute distance.
    centre
        Centres of drawn reference points, (K, d); each posterior's own mean if absent. The NA-DPVI experiments take the
        mean of the iterates. It may depend on anything released, never on ``truths``.
    span
        Half width of the reference box in posterior standard deviations.
    num_repeats
        R, how many times reference points are drawn for the same posteriors.
    nonfinite
        What to do with posteriors whose draws are not all finite: ``"raise"``, or ``"drop"`` and report how many.

    Notes
    -----
    ==============================  =========================================================================
    edge                            what happens
    ==============================  =========================================================================
    draws NaN or infinite           ``ValueError`` with their number, or dropped and counted; never silent
    a point mass (sd 0)             drawn references fall on the centre; coverage is 0 unless the truth is there
    a draw as far as the truth      does not count as closer
    one repeat                      ``std`` is NaN
    reference points symmetric      in one dimension a bias of b sd acts like a width of 1/√(1 + b²), so small ones
    about the posterior             hardly show; references on one side, such as mean + 4 sd, show them
    ==============================  =========================================================================

    References
    ----------
    Lemos et al. (2023), Sampling-based accuracy testing of posterior estimators for general inference.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> centres = rng.normal(size=(500, 2))
    >>> truths = centres + rng.normal(size=(500, 2))
    >>> draws = rng.normal(size=(500, 400, 2))
    >>> right, narrow = (tarp(centres[:, None] + width * draws, truths, rng=rng) for width in (1.0, 0.5))
    >>> bool(right.rmse.mean < perfect_rmse(500).upper < narrow.rmse.mean)
    True
    """
    draws, truth, finite = _checked(samples, truths, nonfinite)
    grid = _levels(levels)
    if references is None:
        references = _draw_references(draws, centre, finite, span, num_repeats, rng)
    points = np.asarray(references, np.float64)
    points = points[None] if points.ndim == 2 else points
    if points.ndim != 3 or points.shape[1:] != (len(finite), truth.shape[1]):
        raise ValueError(
            f"references must have shape (K, d) or (R, K, d) with K = {len(finite)}, d = {truth.shape[1]}, "
            f"got {np.shape(references)}."
        )
    points = points[:, finite]
    if not np.all(np.isfinite(points)):
        raise ValueError("Reference points must be finite: no draw is closer to NaN than any other.")
    if marginal:
        columns = [slice(i, i + 1) for i in range(truth.shape[1])]
        ranks = np.stack([_ranks(draws[..., i], truth[..., i], points[..., i]) for i in columns], axis=-1)
    else:
        ranks = _ranks(draws, truth, points)
    coverage = np.stack([np.mean(ranks < level, axis=1) for level in grid], axis=1)
    return TarpCoverage(grid, coverage, ranks, int(np.sum(~finite)))


def coverage_rmse(coverage: Any, levels: Any) -> np.ndarray:
    """√((1/L) Σ_l (C(level_l) − level_l)²) along axis 1 of ``coverage``, (R, L, …): equation 27 for each repeat.

    Examples
    --------
    >>> coverage_rmse(np.zeros((1, 21)), LEVELS).round(4)  # nothing is ever covered
    array([0.5844])
    """
    errors = np.moveaxis(np.asarray(coverage, np.float64), 1, -1) - np.asarray(levels, np.float64)
    return np.sqrt(np.mean(errors**2, axis=-1))


class PerfectRmse(NamedTuple):
    """The RMSE a perfect posterior shows at this K: mean, standard deviation, and the value 95 % of them are below."""

    num_posteriors: int
    num_repeats: int
    mean: float
    std: float
    upper: float


def perfect_rmse(
    num_posteriors: int,
    levels: Any = None,
    *,
    num_repeats: int = 1,
    num_simulations: int = 20_000,
    rng: np.random.Generator | None = None,
) -> PerfectRmse:
    """Distribution of the coverage RMSE of a perfect posterior, by simulating uniform ranks.

    A mean over redrawn reference points has the expectation of one draw but much less spread: at K = 500, 95 % of
    single draws are below 0.030 and 95 % of means over 20 are below 0.021. To simulate it, a redraw puts the point on
    either side of a posterior with equal probability, which turns its rank f into 1 − f or leaves it. That is exact for
    distant points and one parameter. Points drawn within ±4 sd, in 1 to 12 dimensions, spread a little less (95 % of
    means below 0.020), so the band errs towards passing.

    Parameters
    ----------
    num_posteriors
        K.
    levels
        As given to :func:`tarp`.
    num_repeats
        R, of which the mean RMSE is taken; 1 for a single draw of reference points.
    num_simulations
        How many sets of K posteriors to draw.
    rng
        Generator; absent, a fixed one, so that tables repeat.

    Examples
    --------
    >>> round(perfect_rmse(500).mean, 3), round(perfect_rmse(500).upper, 3)
    (0.016, 0.03)
    >>> round(perfect_rmse(500, num_repeats=20).upper, 3)
    0.021
    """
    if num_posteriors < 1 or num_repeats < 1 or num_simulations < 2:
        raise ValueError("perfect_rmse needs at least one posterior, one repeat and two simulations.")
    grid = _levels(levels)
    generator = np.random.default_rng(0) if rng is None else rng
    # Cells of min(f, 1 − f) between all cuts; a redraw of references splits the count of each by fair coins.
    cuts = np.unique(np.round(np.concatenate([[0.5], np.minimum(grid, 1 - grid)]), 12))
    counts = generator.multinomial(num_posteriors, 2 * np.diff(cuts, prepend=0.0), size=num_simulations)
    column = np.searchsorted(cuts, np.round(np.minimum(grid, 1 - grid), 12))
    errors = np.zeros(num_simulations)
    for _ in range(num_repeats):
        low = generator.binomial(counts, 0.5)
        below, above = low.cumsum(axis=1), (counts - low).cumsum(axis=1)
        covered = np.where(grid <= 0.5, below[:, column], num_posteriors - above[:, column])
        errors += coverage_rmse(covered / num_posteriors, grid) / num_repeats
    upper = float(np.quantile(errors, 0.95))
    return PerfectRmse(num_posteriors, num_repeats, float(errors.mean()), float(errors.std(ddof=1)), upper)


def _ranks(draws: np.ndarray, truths: np.ndarray, references: np.ndarray) -> np.ndarray:
    """f of every repeat and posterior, (R, K), from (K, S, d), (K, d), (R, K, d)."""
    num_posteriors, num_samples, dimension = draws.shape
    ranks = np.empty((references.shape[0], num_posteriors))
    block = max(1, _BLOCK // (num_samples * (dimension + references.shape[0])))
    for start in range(0, num_posteriors, block):
        k = slice(start, start + block)
        # With y = x − θ, ‖x − r‖ < ‖θ − r‖ is ‖y‖² < 2 y·(r − θ): one product for all repeats, and nothing cancels.
        offset = draws[k].astype(np.float64) - truths[k, None]
        direction = 2 * np.moveaxis(references[:, k] - truths[k], 0, -1)
        closer = offset @ direction > np.sum(offset**2, axis=-1, keepdims=True)
        ranks[:, k] = np.count_nonzero(closer, axis=1).T / num_samples
    return ranks


def _draw_references(
    draws: np.ndarray,
    centre: Any,
    finite: np.ndarray,
    span: float,
    num_repeats: int,
    rng: np.random.Generator | None,
) -> np.ndarray:
    """Reference points for all posteriors, (R, K, d); zeros for those that are dropped."""
    if rng is None:
        raise TypeError("tarp draws reference points and needs rng=numpy.random.default_rng(seed), or references.")
    if num_repeats < 1 or not span > 0:
        raise ValueError(f"num_repeats must be at least 1 and span positive, got {num_repeats!r} and {span!r}.")
    shape = (len(finite), draws.shape[2])
    if centre is not None and np.shape(centre) != shape:
        raise ValueError(f"centre must have shape {shape}, one point for each posterior, got {np.shape(centre)}.")
    middle = draws.mean(axis=1, dtype=np.float64) if centre is None else np.asarray(centre, np.float64)[finite]
    width = span * draws.std(axis=1, dtype=np.float64)
    references = np.zeros((num_repeats, *shape))
    references[:, finite] = middle + width * rng.uniform(-1, 1, (num_repeats, *middle.shape))
    return references


def _checked(samples: Any, truths: Any, nonfinite: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws and truths of the posteriors that are finite, and which of all posteriors these are."""
    draws, truth = np.asarray(samples), np.asarray(truths, np.float64)
    if draws.ndim != 3 or truth.shape != draws.shape[::2] or draws.size == 0:
        raise ValueError(
            "samples must have shape (K, S, d) and truths (K, d), with d = 1 for a single parameter; got "
            f"{draws.shape} and {truth.shape}."
        )
    if nonfinite not in ("raise", "drop"):
        raise ValueError(f"nonfinite must be 'raise' or 'drop', got {nonfinite!r}.")
    if not np.all(np.isfinite(truth)):
        raise ValueError("truths must be finite.")
    finite = np.all(np.isfinite(draws), axis=(1, 2))
    bad = int(np.sum(~finite))
    if bad and (nonfinite == "raise" or bad == len(finite)):
        raise ValueError(
            f"{bad} of {len(finite)} posteriors have draws that are NaN or infinite. A method that fails on some "
            "datasets is not covered on them: repair it, or pass nonfinite='drop' and report num_dropped."
        )
    return (draws, truth, finite) if not bad else (draws[finite], truth[finite], finite)


def _levels(levels: Any) -> np.ndarray:
    grid = LEVELS if levels is None else np.asarray(levels, np.float64)
    if grid.ndim != 1 or len(grid) == 0 or not (np.all(np.diff(grid) > 0) and grid[0] > 0 and grid[-1] < 1):
        raise ValueError(f"levels must increase strictly inside (0, 1), got {levels!r}.")
    return grid


def _std(values: np.ndarray) -> np.ndarray:
    """Standard deviation over repeats, with one degree of freedom spent on the mean."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)
