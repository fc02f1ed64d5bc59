"""From a trace to a posterior, and what one can ask of it. Nothing here can see a record."""

from dpvi.posterior.average import averaged
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.joint import join
from dpvi.posterior.last import last_iterate
from dpvi.posterior.na_dpvi import noise_aware
from dpvi.posterior.posterior import Posterior, Summary
from dpvi.posterior.result import Result
from dpvi.posterior.stationary import stationary_noise
from dpvi.posterior.tail import Tail, converged_tail

__all__ = [
    "Gaussian",
    "Posterior",
    "Result",
    "Summary",
    "Tail",
    "averaged",
    "converged_tail",
    "join",
    "last_iterate",
    "noise_aware",
    "stationary_noise",
]
