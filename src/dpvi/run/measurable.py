"""What a plan that measures can be used for: refused here, before a record is read, where it cannot."""

from __future__ import annotations

import warnings
from typing import Any, cast

from dpvi.declared.plan import Plan
from dpvi.declared.validation import FallbackWarning
from dpvi.gradients import Aligned
from dpvi.models.base import GenerativeModel, Model, ModelError
from dpvi.population.covariate_law import CovariateLaw
from dpvi.posterior.score import ScoreModel

_INSTEAD = "Give dpvi.plan sampling_rate, num_steps and clip_norm for a run that takes steps instead."


def refuse_beside_measuring(guide: Any, estimator: Any, optimizer: Any, driver: Any) -> None:
    """Refuse settings that only steps have."""
    given = [
        name
        for name, value in (("a guide", guide), ("an optimizer", optimizer), ("a driver", driver))
        if value is not None
    ]
    if estimator != Aligned():
        given.append(f"estimator={estimator!r}")
    if given:
        raise ValueError(
            f"This plan measures scores at points that follow from what was released, and has no use for "
            f"{', '.join(given)}. {_INSTEAD}"
        )


def warn_about_devices(devices: Any) -> None:
    """Say that a measuring run is not spread over several devices of one process."""
    if devices is not None and len(list(devices)) > 1:
        warnings.warn(
            "A run that measures works through the records of each process on that process's default device; devices= "
            "changes nothing. Leave it out, or start one process for every device (jax.distributed), each with its own "
            "part of the records.",
            FallbackWarning,
            stacklevel=4,  # the line that called fit
        )


def measured_model(model: Model, plan: Plan, covariate_law: CovariateLaw | None) -> ScoreModel:
    """The law of what the plan measures; a model that cannot draw whole records is refused."""
    if covariate_law is not None and plan.covariates:
        raise ValueError(
            "The covariate_law would replace histograms that the plan pays for. Leave it out, or make a plan without "
            "covariates=, which pays for the number of records alone."
        )
    try:
        return ScoreModel(cast(GenerativeModel, model), plan, covariate_law=covariate_law)
    except ModelError as error:
        raise ModelError(
            [
                *error.findings,
                "This plan measures, and what it measures is explained by records drawn from the model. Declare the "
                f"columns of covariates with dpvi.plan(covariates=[...]). {_INSTEAD}",
            ]
        ) from None
