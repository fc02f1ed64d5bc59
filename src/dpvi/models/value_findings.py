"""What values on simulated records say of a model, one sentence per finding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dpvi.models.numpyro.execution import LOG_DETERMINANT
from dpvi.models.simulate import differs

OTHER_PROGRAM = 1e-3  # batch of one against batch of three: sums may be ordered differently


def usable(result: dict[str, Any]) -> bool:
    """Whether some record has a finite term and gradient."""
    return bool(np.any(np.isfinite(result["singles"]) & np.asarray(result["gradients_finite"])))


def finite_findings(results: list[dict[str, Any]]) -> list[str]:
    """Densities and gradients that are finite for no kind of records."""
    findings = []
    if not results[0]["prior_finite"]:
        findings.append("The log prior or its gradient is not finite near z = 0: check the prior's parameters.")
    if any(usable(result) for result in results):
        return findings
    dense = any(np.any(np.isfinite(result["singles"])) for result in results)
    what = "gradient of the log-likelihood" if dense else "log-likelihood"
    findings.append(
        f"The {what} is not finite for any kind of simulated record (normal, uniform, positive, proportions, zeros, "
        "ones, whole numbers 0 and 1, and responses drawn from the model), neither near z = 0 nor at draws from the "
        "prior: check the supports and scales of the observed sites, or pass initial_location=, a point where it is."
    )
    return findings


def integral_findings(latents: Iterable[str], results: list[dict[str, Any]]) -> list[str]:
    """Whether a term is the same at other values of the latents that are integrated out of it."""
    if not any("elsewhere" in each and differs(each["elsewhere"], each["terms"], OTHER_PROGRAM) for each in results):
        return []
    names = ", ".join(map(repr, latents))
    return [
        f"The latents {names} of a record look as if they could be integrated out in closed form, but the formula does "
        "not fit the model; pass guide=dpvi.AutoAmortised(model), or a guide of your own."
    ]


def size_findings(results: list[dict[str, Any]]) -> list[str]:
    """Priors and terms that change with the number of records."""
    findings = []
    many, one = results[0]["prior_terms"], results[0]["prior_terms_of_one"]
    for name in sorted(many.keys() - {LOG_DETERMINANT}):
        if differs(many[name], one[name], OTHER_PROGRAM):
            findings.append(
                f"The prior of {name!r} depends on the number of records: a prior must be fixed before any record is "
                "seen, and that number is itself private; use a public constant."
            )
    if any(differs(result["terms"], result["singles"], OTHER_PROGRAM) for result in results):
        findings.append(
            "The term of a record changes when it is alone in the batch: each term must come from its own record and "
            "the parameters only; remove means, ranks, differences and sizes taken over the batch."
        )
    return findings
