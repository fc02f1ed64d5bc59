"""A study as a user runs it: one call of ``dpvi.fit_many``, whose results hold the traces of all fits."""

from __future__ import annotations

import jax
import optax
from harness.studies import Study, data_sets

from contestants.dpvi_step import make_plan, model
from dpvi.run.many import fit_many


def run(study: Study, spread: bool) -> None:
    """Checks, compilation, all fits and their results."""
    problem = study.problem
    fit_many(
        model,
        data_sets(study),
        make_plan(problem, study.num_steps),
        optimizer=optax.adam(problem.learning_rate),
        seeds=range(study.num_sets),
        devices=jax.devices() if spread else None,
        progress=False,
    )
