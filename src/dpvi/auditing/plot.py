"""The picture of an audit: the trade-off curve, measured and promised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpvi.privacy.trade_off import gaussian_false_negative_rate, gaussian_signal_of, trade_off
from dpvi.reporting.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpvi.auditing.report import Audit


def plot_audit(audit: Audit) -> Figure:
    """Two views of one audit.

    Left, the trade-off curve: the smaller the two error rates, the more is given away, so measured points must not lie
    below the promise. Right, the same points and curves as signals μ = Φ⁻¹(1 − α) − Φ⁻¹(β), where small differences
    show: measured intervals must not lie wholly above the promise. Bars hold at each point by itself.
    """
    figure, axes = new_figure(1, 2, size=(10.5, 4.6))
    draw_audit(axes[0], audit)
    bound = f"ε ≥ {audit.epsilon_lower:.3g} ({100 * audit.confidence:g} %), promise ε = {audit.promise:.3g}"
    figure.suptitle(f"Audit, mode {audit.mode}: measured {bound}, δ = {audit.plan.delta:g}", fontsize=11)
    return figure


def draw_audit(panels: Any, audit: Audit, legend: bool = True) -> None:
    """Draw an audit into two axes."""
    left, right = panels
    curve, points = trade_off(audit.releases, audit.plan.adjacency), audit.points
    alpha = np.concatenate([np.geomspace(1e-4, 0.05, 40), np.linspace(0.051, 0.999, 200)])
    promised = np.clip(curve.false_negative_rate(alpha), 1e-12, 1.0)
    left.plot(alpha, promised, color="C0", label="promise, by the accountant")
    gaussian = f"Gaussian mechanism of the measured bound, μ = {audit.signal_lower:.3g}"
    left.plot(alpha, gaussian_false_negative_rate(alpha, audit.signal_lower), color="C1", ls="--", label=gaussian)
    left.plot([0, 1], [1, 0], color="0.7", lw=0.8, label="nothing given away")
    left.plot(points.false_positive_rate, points.false_negative_rate, "k.", ms=5, label="measured")
    left.set(xlabel="false positive rate α", ylabel="false negative rate β", xlim=(0, 1), ylim=(0, 1))
    visible = (alpha > 0.005) & (alpha < 0.995)
    right.plot(alpha[visible], gaussian_signal_of(alpha, promised)[visible], color="C0")
    right.axhline(audit.signal_lower, color="C1", ls="--")
    bounds = np.stack([points.signal_lower, points.signal_upper])
    counted = np.all(np.isfinite(bounds), axis=0)  # no error at all has no upper bound
    middle, spread = np.mean(bounds[:, counted], axis=0), np.ptp(bounds[:, counted], axis=0) / 2
    right.errorbar(points.false_positive_rate[counted], middle, yerr=spread, fmt="k.", ms=4, lw=0.8, capsize=2)
    right.set(xlabel="false positive rate α", ylabel="signal μ", xlim=(0, 1))
    if legend:
        left.legend(frameon=False, fontsize=8)
