"""The NumPyro front-end: how a model is taken apart, with or without a guide of its own."""

from dpvi.models.numpyro.model import NumPyroModel, as_model

__all__ = ["NumPyroModel", "as_model"]
