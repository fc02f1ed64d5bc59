"""The run: from a model, records and a plan to what was released; ``program`` takes steps, ``placement`` has rows."""

from dpvi.run.optimizers import na_dpvi_sgd

__all__ = ["na_dpvi_sgd"]
