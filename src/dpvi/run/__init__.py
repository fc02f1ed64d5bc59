"""The run: many private steps in one compiled program, recorded as a trace."""

from dpvi.run.optimizers import na_dpvi_sgd

__all__ = ["na_dpvi_sgd"]
