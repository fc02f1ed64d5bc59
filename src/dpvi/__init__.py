"""Private Bayesian inference: a model, records and (ε, δ) in; a posterior that may be published out.

Names load on first use, so that ``dpvi --help`` and making plans start without jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpvi.auditing import Audit, audit
    from dpvi.declared.clipping import PerLayer, QuantileClipping
    from dpvi.declared.columns import Constant, Levels, Numeric, OneHot
    from dpvi.declared.guarantee import Guarantee
    from dpvi.declared.measuring import Measuring
    from dpvi.declared.plan import GaussianRelease, Plan
    from dpvi.declared.schedule import Schedule
    from dpvi.declared.validation import (
        CompilerError,
        ConvergenceWarning,
        FallbackWarning,
        IntervalWarning,
        ModelNotice,
        PrivacyWarning,
    )
    from dpvi.estimators import (
        BoundedScaler,
        PrivateBayesianLinearRegression,
        PrivateBayesianLogisticRegression,
        PrivateBayesianPoissonRegression,
    )
    from dpvi.families import FullRank, LowRank, MeanField
    from dpvi.gradients import Aligned, AlignedNatural, Guided, Natural, Preconditioned, Vanilla
    from dpvi.ledger import Ledger, LedgerError
    from dpvi.models.base import ModelError
    from dpvi.models.check import check
    from dpvi.models.functions import from_functions
    from dpvi.models.numpyro.guides.amortised import AutoAmortised
    from dpvi.models.pymc import from_pymc
    from dpvi.models.table import TableModel
    from dpvi.models.validate import validate
    from dpvi.posterior import Posterior, Result, join
    from dpvi.privacy import plan, plan_nonprivate, plan_together
    from dpvi.records.sources import SourceError, open_arrow, open_npy, open_parquet
    from dpvi.regression.glm import glm
    from dpvi.regression.preview import preview
    from dpvi.release.driver import Directive, Released
    from dpvi.run.dpsvi import DPSVI
    from dpvi.run.fitting import fit
    from dpvi.run.many import fit_many
    from dpvi.run.optimizers import na_dpvi_sgd
    from dpvi.run.placement.hosts import LostProcessError
    from dpvi.synthetic import synthesize
    from dpvi.table import Schema, SchemaError

__version__ = "0.1.0"

__all__ = [
    "DPSVI",
    "Aligned",
    "AlignedNatural",
    "Audit",
    "AutoAmortised",
    "BoundedScaler",
    "CompilerError",
    "Constant",
    "ConvergenceWarning",
    "Directive",
    "FallbackWarning",
    "FullRank",
    "GaussianRelease",
    "Guarantee",
    "Guided",
    "IntervalWarning",
    "Ledger",
    "LedgerError",
    "Levels",
    "LostProcessError",
    "LowRank",
    "MeanField",
    "Measuring",
    "ModelError",
    "ModelNotice",
    "Natural",
    "Numeric",
    "OneHot",
    "PerLayer",
    "Plan",
    "Posterior",
    "Preconditioned",
    "PrivacyWarning",
    "PrivateBayesianLinearRegression",
    "PrivateBayesianLogisticRegression",
    "PrivateBayesianPoissonRegression",
    "QuantileClipping",
    "Released",
    "Result",
    "Schedule",
    "Schema",
    "SchemaError",
    "SourceError",
    "TableModel",
    "Vanilla",
    "__version__",
    "audit",
    "check",
    "fit",
    "fit_many",
    "from_functions",
    "from_pymc",
    "glm",
    "join",
    "na_dpvi_sgd",
    "open_arrow",
    "open_npy",
    "open_parquet",
    "plan",
    "plan_nonprivate",
    "plan_together",
    "preview",
    "synthesize",
    "validate",
]

_PACKAGES = (
    "auditing",
    "declared",
    "evaluate",
    "families",
    "gradients",
    "ledger",
    "models",
    "population",
    "posterior",
    "privacy",
    "records",
    "regression",
    "release",
    "reporting",
    "run",
    "synthetic",
    "table",
)

_HOMES = {
    "dpvi.auditing": ("Audit", "audit"),
    "dpvi.declared.clipping": ("PerLayer", "QuantileClipping"),
    "dpvi.declared.columns": ("Constant", "Levels", "Numeric", "OneHot"),
    "dpvi.release.driver": ("Directive", "Released"),
    "dpvi.declared.guarantee": ("Guarantee",),
    "dpvi.declared.measuring": ("Measuring",),
    "dpvi.declared.plan": ("GaussianRelease", "Plan"),
    "dpvi.declared.schedule": ("Schedule",),
    "dpvi.declared.validation": (
        "CompilerError",
        "ConvergenceWarning",
        "FallbackWarning",
        "IntervalWarning",
        "ModelNotice",
        "PrivacyWarning",
    ),
    "dpvi.table": ("Schema", "SchemaError"),
    "dpvi.records.sources": ("SourceError", "open_arrow", "open_npy", "open_parquet"),
    "dpvi.run.dpsvi": ("DPSVI",),
    "dpvi.estimators": (
        "BoundedScaler",
        "PrivateBayesianLinearRegression",
        "PrivateBayesianLogisticRegression",
        "PrivateBayesianPoissonRegression",
    ),
    "dpvi.families": ("FullRank", "LowRank", "MeanField"),
    "dpvi.run.fitting": ("fit",),
    "dpvi.gradients": ("Aligned", "AlignedNatural", "Guided", "Natural", "Preconditioned", "Vanilla"),
    "dpvi.ledger": ("Ledger", "LedgerError"),
    "dpvi.models.base": ("ModelError",),
    "dpvi.models.check": ("check",),
    "dpvi.models.functions": ("from_functions",),
    "dpvi.models.numpyro.guides.amortised": ("AutoAmortised",),
    "dpvi.models.pymc": ("from_pymc",),
    "dpvi.models.table": ("TableModel",),
    "dpvi.models.validate": ("validate",),
    "dpvi.posterior": ("Posterior", "Result", "join"),
    "dpvi.privacy": ("plan", "plan_nonprivate", "plan_together"),
    "dpvi.regression.glm": ("glm",),
    "dpvi.regression.preview": ("preview",),
    "dpvi.run.many": ("fit_many",),
    "dpvi.synthetic": ("synthesize",),
    "dpvi.run.placement.hosts": ("LostProcessError",),
    "dpvi.run.optimizers": ("na_dpvi_sgd",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = value = getattr(importlib.import_module(home), name)
            return value
    if name in _PACKAGES:
        return importlib.import_module(f"dpvi.{name}")
    raise AttributeError(f"module 'dpvi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES]
