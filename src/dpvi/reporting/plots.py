"""Coverage and calibration, each beside what a perfect answer would show at the same size.

A curve off the diagonal says nothing by itself: K posteriors or n predictions scatter. So every picture carries the
band in which 95 % of perfect answers lie at each point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.stats

from dpvi.evaluate.calibration import CalibrationCurve
from dpvi.evaluate.tarp import TarpCoverage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUM_COLOURS = 10  # of matplotlib's cycle
_MARKERS = "osD^vP*X"
_BAND_SHADES = ("0.85", "0.92", "0.96")


def check_drawing() -> None:
    """Refuse to draw where matplotlib is not installed.

    Raises
    ------
    ImportError
        It says what to install. Asked before minutes of work.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ImportError("Plots need matplotlib, which is optional: install dpvi[plot] or matplotlib.") from None


def new_figure(rows: int = 1, columns: int = 1, size: tuple[float, float] = (6.0, 4.0)) -> tuple[Figure, Any]:
    """A figure with its axes, a grid of ``rows`` × ``columns``; no window and no global state, so nothing to close."""
    check_drawing()
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def coverage_band(num_posteriors: int, levels: Any, probability: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Where the coverage of a perfect posterior lies with ``probability``, at each level by itself.

    K C(level) is binomial with K = ``num_posteriors`` trials, for one draw of reference points. Curves that are means
    over redraws vary less, so the band errs towards passing.

    Examples
    --------
    >>> lower, upper = coverage_band(500, [0.5])
    >>> lower, upper
    (array([0.456]), array([0.544]))
    """
    tail = (1 - probability) / 2
    quantiles = scipy.stats.binom.ppf([[tail], [1 - tail]], num_posteriors, np.asarray(levels, np.float64))
    return quantiles[0] / num_posteriors, quantiles[1] / num_posteriors


def plot_coverage(coverages: Mapping[str, TarpCoverage], *, title: str | None = None) -> Figure:
    """Expected coverage against credible level, and beside it the coverage error, for several methods.

    Curves are means over redraws of reference points, bars one standard deviation over redraws. Grey bands hold 95 % of
    perfect posteriors at each level, one band for each number of posteriors K among the methods.

    Parameters
    ----------
    coverages
        ``{method: result of tarp}``, joint results; for marginal ones plot a parameter at a time.
    title
        Above the figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from dpvi.evaluate import tarp
    >>> rng = np.random.default_rng(1)
    >>> draws, truths = rng.normal(size=(100, 500, 2)), rng.normal(size=(100, 2))
    >>> figure = plot_coverage({"right": tarp(draws, truths, rng=rng)})
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['expected coverage', 'coverage − level']
    """
    if not coverages:
        raise ValueError("plot_coverage needs at least one method.")
    for name, result in coverages.items():
        if result.coverage.ndim != 2:
            raise ValueError(
                f"The coverage of {name!r} is marginal, one curve per parameter; pass a joint result, or pick a "
                "parameter with result._replace(coverage=result.coverage[..., i])."
            )
    figure, axes = new_figure(1, 2, size=(10.5, 4.8))
    left, right = axes[0]
    sizes = sorted({result.num_posteriors for result in coverages.values()})
    grid = np.linspace(0.001, 0.999, 400)
    for size, shade in zip(sizes, _shades(len(sizes)), strict=True):
        lower, upper = coverage_band(size, grid)
        label = f"perfect posterior, 95 %, K = {size}"
        left.fill_between(grid, lower, upper, color=shade, linewidth=0, label=label, zorder=-1000 / size)
        right.fill_between(grid, lower - grid, upper - grid, color=shade, linewidth=0, zorder=-1000 / size)
    markers = _cycle(_MARKERS, len(coverages))
    for index, ((name, result), marker) in enumerate(zip(coverages.items(), markers, strict=True)):
        spread = np.nan_to_num(result.std)  # of a single repeat there is none
        dash = "-" if index < _NUM_COLOURS else ":"  # colours come round again
        style = {"marker": marker, "markersize": 3, "linewidth": 1, "elinewidth": 0.8, "linestyle": dash}
        left.errorbar(result.levels, result.mean, yerr=spread, label=name, **style)
        right.errorbar(result.levels, result.mean - result.levels, yerr=spread, **style)
    left.plot([0, 1], [0, 1], color="0.4", linewidth=0.8, linestyle="--")
    right.axhline(0, color="0.4", linewidth=0.8, linestyle="--")
    left.set(xlabel="credible level", ylabel="expected coverage")
    right.set(xlabel="credible level", ylabel="coverage − level")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=7)
    if title:
        figure.suptitle(title)
    return figure


def plot_calibration(
    curves: Mapping[str, CalibrationCurve | Sequence[CalibrationCurve]], *, title: str | None = None
) -> Figure:
    """Fraction of positives against mean score, for one run or several of each method.

    Bars on the diagonal hold the fraction of positives of right probabilities, 95 % of the time for each bin: its mean
    score ± 1.96 √(p(1 − p)/n), p the mean score and n the number of records in the bin. Where all records of a bin have
    the same probability that is their spread; where they differ it is smaller, so the bars err towards passing.

    Parameters
    ----------
    curves
        ``{method: result of calibration_curve}``, or a sequence of such from repeated runs, with equal numbers of bins:
        then means over runs are drawn, with one standard deviation over runs as bars.
    title
        Above the figure.

    Examples
    --------
    >>> from dpvi.evaluate import calibration_curve
    >>> rng = np.random.default_rng(1)
    >>> p = rng.uniform(size=2000)
    >>> figure = plot_calibration({"right": calibration_curve(p, rng.uniform(size=2000) < p)})
    >>> figure.axes[0].get_xlabel()
    'mean predicted probability'
    """
    if not curves:
        raise ValueError("plot_calibration needs at least one method.")
    figure, axes = new_figure(size=(5.5, 5.0))
    panel = axes[0, 0]
    panel.plot([0, 1], [0, 1], color="0.4", linewidth=0.8, linestyle="--")
    for index, ((name, value), marker) in enumerate(zip(curves.items(), _cycle(_MARKERS, len(curves)), strict=True)):
        runs = [value] if isinstance(value, CalibrationCurve) else list(value)
        if not runs or len({len(run.mean_score) for run in runs}) != 1:
            raise ValueError(f"The runs of {name!r} must be one or more, with equal numbers of bins.")
        score, fraction, count = (np.array(part, np.float64) for part in zip(*runs, strict=True))
        middle, size = score.mean(axis=0), count.mean(axis=0)
        expected = 1.96 * np.sqrt(middle * (1 - middle) / size)
        label = "right probabilities, 95 % of single runs" if index == 0 else None
        panel.errorbar(
            middle, middle, yerr=expected, fmt="none", ecolor="0.75", elinewidth=4, alpha=0.7, label=label, zorder=0
        )
        spread = fraction.std(axis=0, ddof=1) if len(runs) > 1 else None
        panel.errorbar(middle, fraction.mean(axis=0), yerr=spread, marker=marker, markersize=4, linewidth=1, label=name)
    panel.set(xlabel="mean predicted probability", ylabel="fraction of positives", xlim=(0, 1), ylim=(0, 1))
    panel.legend(frameon=False, fontsize=8)
    if title:
        figure.suptitle(title)
    return figure


def _shades(count: int) -> list[str]:
    """Greys for nested bands: the widest, of the fewest posteriors, is the lightest."""
    return list(reversed(_cycle(_BAND_SHADES, count)))


def _cycle(values: Sequence[str], count: int) -> list[str]:
    return [values[i % len(values)] for i in range(count)]
