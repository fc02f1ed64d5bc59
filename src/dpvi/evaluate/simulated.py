"""A private fit held against itself: data sets like the one behind a result, and how often intervals hold the truth.

Everything here is computed from a result, so it reads no record and costs no privacy. What it cannot find is a model
that is wrong about the records: simulated ones come from the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.stats

from dpvi.population.covariates import as_leaves
from dpvi.population.generative import check_generative, simulate_records
from dpvi.posterior.posterior import Posterior
from dpvi.posterior.predictors import predictor_rows
from dpvi.posterior.result import Result


class IntervalCheck(NamedTuple):
    """How often intervals held the truth, by parameter."""

    names: tuple[str, ...]
    held: np.ndarray  # share of data sets
    num_datasets: int
    probability: float

    @property
    def mean(self) -> float:
        return float(np.mean(self.held))

    @property
    def verdict(self) -> str:
        """What all parameters together say, beside what honest intervals would."""
        low, high = scipy.stats.binom.ppf([0.005, 0.995], self.num_datasets, self.probability) / self.num_datasets
        worst = float(np.min(self.held))
        fits = "as honest intervals do" if worst >= low else "so that some are too narrow here; use a larger epsilon"
        return (
            f"{100 * self.probability:g} % intervals held the truth in {100 * self.mean:.0f} % of {self.num_datasets} "
            f"simulated data sets, {100 * worst:.0f} % for the worst parameter, {fits}: by chance one parameter has "
            f"{100 * low:.0f} to {100 * high:.0f} %."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "probability": self.probability,
            "datasets": self.num_datasets,
            "mean": self.mean,
            "held": dict(zip(self.names, self.held.tolist(), strict=True)),
            "verdict": self.verdict,
        }


def simulated_like(result: Result, num_datasets: int, num_records: int, seed: int) -> tuple[dict[str, np.ndarray], Any]:
    """Parameters from the posterior, and a data set for each: ``({site: (datasets, …)}, records)``.

    Covariates follow what the run released of them. Records have the leading axes (datasets, records).
    """
    model: Any = result.model
    if model is None:
        raise ValueError("Records are simulated by the model, and this result has none; give it with --model.")
    posterior = result.posterior()
    keys = jax.random.split(jax.random.key(seed), num_datasets + 1)
    z = posterior.sample_unconstrained(num_datasets, keys[0])

    def released(key: jax.Array, count: int) -> list[Any]:
        return as_leaves(model, predictor_rows(result, count, key))

    law = released if result.plan.covariates else None
    check_generative(model, law)
    data = [simulate_records(model, each, key, num_records, law) for each, key in zip(z, keys[1:], strict=True)]
    truths = jax.vmap(posterior.bijections.constrain)(z)
    stacked = jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *data)
    return {name: np.asarray(value) for name, value in truths.items()}, stacked


def interval_check(
    truths: Mapping[str, np.ndarray], posteriors: Sequence[Posterior], probability: float
) -> IntervalCheck:
    """How often the intervals of ``posteriors`` hold ``truths``, one of each for every data set."""
    held, names = [], ()
    for index, posterior in enumerate(posteriors):
        found = posterior.summary(probability)
        names = found.names
        order = posterior.sample(1, jax.random.key(0))
        truth = np.concatenate([np.ravel(truths[site][index]) for site in order if site in truths])
        held.append((found.lower[: len(truth)] <= truth) & (truth <= found.upper[: len(truth)]))
    held_share = np.mean(held, axis=0)
    return IntervalCheck(tuple(names[: len(held_share)]), held_share, len(posteriors), probability)
