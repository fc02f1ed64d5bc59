"""Clip norms of the score posterior's runs, by simulation from the models alone.

``python -m experiments.coverage.clip_norms`` prints what ``choose_clip_norm`` says for every case of Tables 1 and 2;
the choices stand in the cases.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import dpvi
from dpvi.models.numpyro import NumPyroModel
from dpvi.posterior.score import choose_clip_norm
from experiments.coverage.case import DELTA, SAMPLING_RATE, Case
from experiments.coverage.runs import Study
from experiments.exponential_families.cases import CASES as EXPONENTIAL_FAMILIES
from experiments.linear_regression_10d.cases import CASES as REGRESSION

_CLIP_NORMS = np.geomspace(0.25, 64, 17)


def choice_of(case: Case) -> float:
    """The clip norm for ``case``; the guess of N is the study's, which is public there."""
    study, problem = Study(), case.problem
    plan = dpvi.plan(case.epsilon, DELTA, SAMPLING_RATE, study.num_steps, 1.0, num_records=study.num_records)
    example = problem.simulate(np.random.default_rng(0), 1).records
    structure = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], jnp.dtype(leaf.dtype)), example)
    model = NumPyroModel(problem.model, structure)
    found = choose_clip_norm(model, plan, _CLIP_NORMS, covariate_law=problem.covariate_law)
    lost = found.information.max() - found.information
    print(f"{problem.name}, ε = {case.epsilon:g}: {found.clip_norm:.3g}; nats lost by candidate:")
    print("  " + ", ".join(f"{norm:.3g}: {loss:.2f}" for norm, loss in zip(_CLIP_NORMS, lost, strict=True)), flush=True)
    return found.clip_norm


if __name__ == "__main__":
    for one in (*EXPONENTIAL_FAMILIES, *REGRESSION):
        choice_of(one)
