"""A NumPyro model with a guide of its own: a part that reads no record, and one term per record.

What a guide and its model may hold is what :func:`~dpvi.models.numpyro.guides.check.check_guide` lets pass.
"""

from dpvi.models.numpyro.guides.amortised import AutoAmortised
from dpvi.models.numpyro.guides.check import check_guide
from dpvi.models.numpyro.guides.model import GuidedModel

__all__ = ["AutoAmortised", "GuidedModel", "check_guide"]
