"""Private Bayesian inference: a model, records and (ε, δ) in; a posterior that may be published out.

Names load on first use, so that ``dpvi --help`` and making plans start without jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Aligned": "dpvi.gradients",
    "AlignedNatural": "dpvi.gradients",
    "Directive": "dpvi.train.driver",
    "FullRank": "dpvi.families",
    "Guarantee": "dpvi.core.guarantee",
    "LowRank": "dpvi.families",
    "MeanField": "dpvi.families",
    "ModelError": "dpvi.models.base",
    "Natural": "dpvi.gradients",
    "Plan": "dpvi.core.plan",
    "Posterior": "dpvi.posterior",
    "Preconditioned": "dpvi.gradients",
    "PrivacyWarning": "dpvi.privacy",
    "Result": "dpvi.posterior",
    "Vanilla": "dpvi.gradients",
    "check": "dpvi.models.check",
    "fit": "dpvi.fitting",
    "fit_many": "dpvi.fitting",
    "from_functions": "dpvi.models.functions",
    "plan": "dpvi.privacy",
    "plan_nonprivate": "dpvi.privacy",
    "validate": "dpvi.models.validate",
}

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    from dpvi.core.guarantee import Guarantee
    from dpvi.core.plan import Plan
    from dpvi.models.validate import validate
    from dpvi.families import FullRank, LowRank, MeanField
    from dpvi.fitting import fit, fit_many
    from dpvi.gradients import Aligned, AlignedNatural, Natural, Preconditioned, Vanilla
    from dpvi.models.base import ModelError
    from dpvi.models.check import check
    from dpvi.models.functions import from_functions
    from dpvi.posterior import Posterior, Result
    from dpvi.privacy import PrivacyWarning, plan, plan_nonprivate
    from dpvi.train.driver import Directive


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dpvi' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
