"""Pictures of what the numbers say: coverage, calibration, and the noisy gradients of a run."""

from dpvi.reporting.noisy_gradients import StepGradients, gradient_line, plot_noisy_gradients, step_gradients
from dpvi.reporting.plots import plot_calibration, plot_coverage

__all__ = [
    "StepGradients",
    "gradient_line",
    "plot_calibration",
    "plot_coverage",
    "plot_noisy_gradients",
    "step_gradients",
]
