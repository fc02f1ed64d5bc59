"""Measuring runs: a handful of noisy sums over all records, each asked for from what was released before it."""

from dpvi.run.measuring.answers import Answers
from dpvi.run.measuring.contributions import Contributions
from dpvi.run.measuring.run import measure, measured_trace

__all__ = ["Answers", "Contributions", "measure", "measured_trace"]
