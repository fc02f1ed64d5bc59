"""Iterate averaging (DPVIm, section 3.2): the mean of each unconstrained parameter over its converged tail."""

from __future__ import annotations

from dpvi.families.base import Family
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.last import gaussian_of
from dpvi.posterior.tail import converged_tail
from dpvi.release.trace import Trace


def averaged(trace: Trace, family: Family, slope_threshold: float = 0.05) -> Gaussian:
    """q at the averaged parameters. Less noisy than the last iterate, but as silent about what noise is left."""
    tail = converged_tail(trace, slope_threshold)
    return gaussian_of(family, tail.mean.astype(trace.final.dtype))
