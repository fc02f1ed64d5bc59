"""Many data sets of one size, as a repeated study has them. Needs numpy only."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from harness.problem import Problem


@dataclass(frozen=True)
class Study:
    """``num_sets`` data sets of one problem, each fitted with ``num_steps`` steps."""

    problem: Problem
    num_sets: int
    num_steps: int


@functools.cache
def data_sets(study: Study) -> tuple[np.ndarray, np.ndarray]:
    """Covariates (float32, ``[num_sets, num_records, dimension]``) and labels (float32 0/1), from the model."""
    generator = np.random.default_rng(20_240_301)
    problem = study.problem
    weights = generator.standard_normal((study.num_sets, problem.dimension, 1), dtype=np.float32)
    shape = (study.num_sets, problem.num_records)
    x = generator.standard_normal((*shape, problem.dimension), dtype=np.float32)
    logits = (x @ weights)[..., 0] / np.float32(np.sqrt(problem.dimension))
    labels = generator.random(shape, dtype=np.float32) * (1 + np.exp(-logits)) < 1
    return x, labels.astype(np.float32)
