"""Whether posteriors are right, and how sharp they are: coverage, calibration, scores."""

from dpvi.evaluate.calibration import CalibrationCurve, binned_calibration_rmse, calibration_curve, calibration_rmse
from dpvi.evaluate.scores import crps, crps_gaussian_mixture, interval_coverage, interval_width, log_score
from dpvi.evaluate.tarp import LEVELS, Estimate, PerfectRmse, TarpCoverage, coverage_rmse, perfect_rmse, tarp

__all__ = [
    "LEVELS",
    "CalibrationCurve",
    "Estimate",
    "PerfectRmse",
    "TarpCoverage",
    "binned_calibration_rmse",
    "calibration_curve",
    "calibration_rmse",
    "coverage_rmse",
    "crps",
    "crps_gaussian_mixture",
    "interval_coverage",
    "interval_width",
    "log_score",
    "perfect_rmse",
    "tarp",
]
