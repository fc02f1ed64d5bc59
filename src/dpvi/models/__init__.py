"""Front-ends that turn a model into a prior on z and one log-likelihood term per record.

The model check is ``dpvi.models.check.check``; it is not re-exported, so that the module keeps its name.
"""

from dpvi.models.base import Model, ModelError
from dpvi.models.functions import FunctionModel, from_functions
from dpvi.models.numpyro import NumPyroModel
from dpvi.models.sites import Site, StaticBijections, needs_model, sites_from_dict, sites_to_dict

__all__ = [
    "FunctionModel",
    "Model",
    "ModelError",
    "NumPyroModel",
    "Site",
    "StaticBijections",
    "from_functions",
    "needs_model",
    "sites_from_dict",
    "sites_to_dict",
]
