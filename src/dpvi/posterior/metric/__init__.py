"""The metric posterior: scores of all records, measured where the answer is, in the model's own metric."""

from dpvi.posterior.metric.metric_posterior import MetricGaussian, metric_posterior
from dpvi.posterior.metric.strategy import make_strategy

__all__ = ["MetricGaussian", "make_strategy", "metric_posterior"]
