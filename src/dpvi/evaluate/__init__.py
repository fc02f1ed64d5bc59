"""Whether posteriors are right, and how sharp they are: coverage, calibration, scores, distance to an optimum."""

from dpvi.evaluate.calibration import CalibrationCurve, binned_calibration_rmse, calibration_curve, calibration_rmse
from dpvi.evaluate.scores import crps, crps_gaussian_mixture, interval_coverage, interval_width, log_score
from dpvi.evaluate.tarp import LEVELS, Estimate, PerfectRmse, TarpCoverage, coverage_rmse, perfect_rmse, tarp
from studies.coverage_tables import CoverageRow, CoverageTable, coverage_row, coverage_table
from studies.mpae import mpae

__all__ = [
    "LEVELS",
    "CalibrationCurve",
    "CoverageRow",
    "CoverageTable",
    "Estimate",
    "PerfectRmse",
    "TarpCoverage",
    "binned_calibration_rmse",
    "calibration_curve",
    "calibration_rmse",
    "coverage_rmse",
    "coverage_row",
    "coverage_table",
    "crps",
    "crps_gaussian_mixture",
    "interval_coverage",
    "interval_width",
    "log_score",
    "mpae",
    "perfect_rmse",
    "tarp",
]
