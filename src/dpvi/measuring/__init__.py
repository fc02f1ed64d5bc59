"""Measuring runs: a handful of noisy sums over all records, each asked for from what was released before it."""

from dpvi.measuring.answers import Answers
from dpvi.measuring.contributions import Contributions
from dpvi.measuring.run import measure, measured_trace

__all__ = ["Answers", "Contributions", "measure", "measured_trace"]
