"""Pictures and pages of what the numbers say: reports, coverage, calibration, the noisy gradients of a run."""

from dpvi.reporting.noisy_gradients import StepGradients, gradient_line, plot_noisy_gradients, step_gradients
from dpvi.reporting.page.charts import Effect
from dpvi.reporting.page.report import Contents, report_page, write_report
from dpvi.reporting.page.synthetic import synthetic_page, write_synthetic_page
from dpvi.reporting.plots import plot_calibration, plot_coverage

__all__ = [
    "Contents",
    "Effect",
    "StepGradients",
    "gradient_line",
    "plot_calibration",
    "plot_coverage",
    "plot_noisy_gradients",
    "report_page",
    "step_gradients",
    "synthetic_page",
    "write_report",
    "write_synthetic_page",
]
