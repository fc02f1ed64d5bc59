"""Stationary noise (DPVIm, section 3.2): the averaged posterior, widened by what the iterates themselves show.

Near the optimum the iterates are an Ornstein-Uhlenbeck process around it. Its stationary variance, read off the
converged tail, is added to the variance of the location. That is the variance of one iterate and not of the mean of
many, so the interval is wider than averaging alone would need.
"""

from __future__ import annotations

from dpvi.families.base import Family
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.last import gaussian_of
from dpvi.posterior.tail import converged_tail
from dpvi.release.trace import Trace


def stationary_noise(trace: Trace, family: Family, slope_threshold: float = 0.05) -> Gaussian:
    """q at the averaged parameters, its location's variance increased by the tail's."""
    tail = converged_tail(trace, slope_threshold)
    mean = tail.mean.astype(trace.final.dtype)
    dimension = gaussian_of(family, mean).mean.shape[0]
    return gaussian_of(family, mean, tail.variance[:dimension])
