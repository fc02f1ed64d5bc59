"""NA-DPVI: a posterior that knows how much privacy noise its gradients carried."""

from dpvi.posterior.na_dpvi.dense import DenseModel, DenseStatistics, dense_statistics
from dpvi.posterior.na_dpvi.elliptical_slice import slice_draws
from dpvi.posterior.na_dpvi.exact import Quadrature, quadrature
from dpvi.posterior.na_dpvi.laplace import LaplaceApproximation, laplace_approximation
from dpvi.posterior.na_dpvi.mixture import FamilyMixture, MeanFieldMixture
from dpvi.posterior.na_dpvi.model import (
    GradientModel,
    TraceStatistics,
    gradient_model,
    log_likelihood,
    trace_statistics,
)
from dpvi.posterior.na_dpvi.noise_aware import dense_model_of_run, model_of_run, noise_aware
from dpvi.posterior.na_dpvi.nuts import nuts_draws

__all__ = [
    "DenseModel",
    "DenseStatistics",
    "FamilyMixture",
    "GradientModel",
    "LaplaceApproximation",
    "MeanFieldMixture",
    "Quadrature",
    "TraceStatistics",
    "dense_model_of_run",
    "dense_statistics",
    "gradient_model",
    "laplace_approximation",
    "log_likelihood",
    "model_of_run",
    "noise_aware",
    "nuts_draws",
    "quadrature",
    "slice_draws",
    "trace_statistics",
]
