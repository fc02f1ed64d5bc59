"""Pictures of a regression: coefficients with both parts of their intervals, predictions, contrasts, previews."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.stats

from dpvi.regression.comparisons import Effects
from dpvi.regression.summary import CoefficientTable
from dpvi.reporting.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpvi.regression.preview import Preview

_MOST_PANELS = 12


def plot_coefficients(table: CoefficientTable) -> Figure:
    """Estimates with their intervals, and inside each, thick, what the same model is unsure of without privacy."""
    shown = [index for index, name in enumerate(table.names) if name != "Intercept"]
    figure, axes = new_figure(size=(7.0, 1.2 + 0.35 * len(shown)))
    panel, half = axes[0, 0], float(scipy.stats.norm.ppf((1 + table.probability) / 2))
    for height, index in enumerate(reversed(shown)):
        middle = table.estimate[index]
        panel.plot([table.lower[index], table.upper[index]], [height, height], color="C0", linewidth=1.5)
        if table.sampling_sd is not None:
            reach = half * table.sampling_sd[index]
            panel.plot([middle - reach, middle + reach], [height, height], color="C0", linewidth=5, alpha=0.5)
        panel.plot([middle], [height], "o", color="C0")
    panel.axvline(0, color="0.7", linewidth=1, zorder=0)
    panel.set_yticks(range(len(shown)), [table.names[index] for index in reversed(shown)])
    panel.set_xlabel("per unit of the column; thick: without privacy")
    return figure


def plot_effects(effects: Effects) -> Figure:
    """Adjusted predictions as a band over a number or as bars over levels, and contrasts as bars."""
    figure, axes = new_figure()
    panel = axes[0, 0]
    numbers = all(isinstance(each, (int, float, np.integer, np.floating)) for each in effects.values)
    if numbers and not any(isinstance(each, bool) for each in effects.values) and len(effects.values) > 2:
        _bands(panel, effects)
    else:
        places = np.arange(len(effects.labels))
        reach = np.stack([effects.estimate - effects.lower, effects.upper - effects.estimate])
        panel.errorbar(places, effects.estimate, yerr=reach, fmt="o", capsize=3)
        panel.set_xticks(places, effects.labels, rotation=20 if len(places) > 3 else 0)
    panel.set_title(effects.title, fontsize="medium")
    panel.set_xlabel(effects.variable)
    return figure


def plot_preview(preview: Preview, names: Sequence[str] | None = None) -> Figure:
    """Widths of intervals by ε, one panel per coefficient; dashed, what the same model has without privacy."""
    shown = list(names) if names is not None else list(preview.names)[:_MOST_PANELS]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = new_figure(rows, columns, size=(3.4 * columns, 2.6 * rows + 0.4))
    for panel, name in zip(axes.flat, shown, strict=False):
        index = preview.names.index(name)
        for place, size in enumerate(preview.num_records):
            colour = f"C{place % 10}"
            panel.plot(preview.epsilon, preview.width[:, place, index], "o-", color=colour, label=f"{size} records")
            panel.axhline(preview.nonprivate[place, index], color=colour, linestyle="--", linewidth=1)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(name, fontsize="medium")
        panel.set_xlabel("ε")
    for panel in axes.flat[len(shown) :]:
        panel.set_axis_off()
    axes[0, 0].set_ylabel(f"width of {100 * preview.probability:g} % interval")
    axes[0, 0].legend(fontsize="small")
    return figure


def _bands(panel: Any, effects: Effects) -> None:
    """One line and band for each level of the response, or one."""
    kinds = [label.partition(": ")[2] for label in effects.labels]
    for kind in dict.fromkeys(kinds):
        chosen = [index for index, each in enumerate(kinds) if each == kind]
        at = np.array([effects.values[index] for index in chosen], dtype=np.float64)
        panel.plot(at, effects.estimate[chosen], label=kind or None)
        panel.fill_between(at, effects.lower[chosen], effects.upper[chosen], alpha=0.25)
    if kinds[0]:
        panel.legend()
