"""The published settings of Table 1 and its numbers."""

from __future__ import annotations

import math

from experiments.coverage.case import Case, PaperNumber, Problem
from experiments.exponential_families import baselines, models

_EPSILON, _NOISE_MULTIPLIER = 0.1, 360.0
_GROUP_SIZE = 125

GAMMA_EXPONENTIAL = Problem(
    name="gamma_exponential",
    title="Gamma-Exponential",
    model=models.gamma_exponential,
    simulate=models.simulate_exponential,
    conjugate=models.exact_exponential,
    clip_norm=2.0,
    initial_location=(0.0,),
    initial_scale_parameter=-4.0,
    scale_beta=100.0,
    location_lambda=(1.0,),
    scale_lambda=1.0,
    group_size=_GROUP_SIZE,
    bernstein_sheldon=baselines.exponential_draws,
)
BETA_BERNOULLI = Problem(
    name="beta_bernoulli",
    title="Beta-Bernoulli",
    model=models.beta_bernoulli,
    simulate=models.simulate_bernoulli,
    conjugate=models.exact_bernoulli,
    clip_norm=2.0,
    initial_location=(0.0,),
    initial_scale_parameter=-4.0,
    scale_beta=120.0,
    location_lambda=(1.0,),
    scale_lambda=1.0,
    group_size=_GROUP_SIZE,
    bernstein_sheldon=baselines.bernoulli_draws,
)
DIRICHLET_CATEGORICAL = Problem(
    name="dirichlet_categorical",
    title="Dirichlet-Categorical",
    model=models.dirichlet_categorical,
    simulate=models.simulate_categorical,
    conjugate=models.exact_categorical,
    clip_norm=math.sqrt(2),
    initial_location=(0.0, 0.0),
    initial_scale_parameter=-6.0,
    scale_beta=100.0,
    location_lambda=(1.0, 1.0),
    scale_lambda=1.0,
    group_size=_GROUP_SIZE,
    bernstein_sheldon=baselines.categorical_draws,
)

_PAPER = {
    GAMMA_EXPONENTIAL: {"nuts": (0.023, 0.008), "bernstein_sheldon": (0.034, 0.011), "naive": (0.232, 0.003),
                        "dpvim": (0.038, 0.005)},
    BETA_BERNOULLI: {"nuts": (0.016, 0.006), "bernstein_sheldon": (0.018, 0.006), "naive": (0.273, 0.007),
                     "dpvim": (0.044, 0.004)},
    DIRICHLET_CATEGORICAL: {"nuts": (0.020, 0.004), "bernstein_sheldon": (0.017, 0.007), "naive": (0.355, 0.009),
                            "dpvim": (0.251, 0.011)},
}  # fmt: skip

_SCORE_CLIP_NORMS = {GAMMA_EXPONENTIAL: 0.354, BETA_BERNOULLI: 0.5, DIRICHLET_CATEGORICAL: 0.5}

CASES = tuple(
    Case(
        name=problem.name,
        title=problem.title,
        problem=problem,
        epsilon=_EPSILON,
        noise_multiplier=_NOISE_MULTIPLIER,
        score_clip_norm=_SCORE_CLIP_NORMS[problem],
        paper={method: PaperNumber(*number) for method, number in numbers.items()},
    )
    for problem, numbers in _PAPER.items()
)
