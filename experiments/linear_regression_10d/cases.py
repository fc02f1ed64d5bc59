"""The published settings of Table 2 and its numbers.

The paper's program notes other step sizes for NUTS at "higher ε" without saying which; these are the ones of its
configuration, for all ε.
"""

from __future__ import annotations

import dpvi
from experiments.coverage.case import Case, PaperNumber, Problem
from experiments.linear_regression_10d import models
from experiments.linear_regression_10d.baselines import gibbs_draws

REGRESSION = Problem(
    name="linear_regression_10d",
    title="10-D linear regression",
    model=models.linear_regression,
    simulate=models.simulate_regression,
    conjugate=models.exact_regression,
    clip_norm=260.0,
    initial_location=(-4.0,) + (1.0,) * models.NUM_WEIGHTS,
    initial_scale_parameter=-6.0,
    scale_beta=1500.0,
    location_lambda=(1 / 7,) + (4.0,) * models.NUM_WEIGHTS,
    scale_lambda=4.0,
    group_size=25,
    covariate_law=models.draw_covariates,
    columns=(dpvi.Numeric(-4, 4),) * models.NUM_COVARIATES,
    regression_baseline=gibbs_draws,
)

_METHODS = ("nuts", "laplace", "naive", "bernstein_sheldon", "dpvim")
_PAPER = {  # ε: (noise multiplier, mean and standard deviation of each method, in thousandths)
    0.1: (360.0, (36, 11), (78, 11), (512, 3), (301, 1), (584, 0)),
    0.3: (117.5, (35, 11), (98, 6), (307, 3), (299, 1), (584, 0)),
    1.0: (37.8125, (27, 9), (60, 7), (360, 3), (323, 3), (584, 0)),
}

_SCORE_CLIP_NORMS = {0.1: 11.3, 0.3: 22.6, 1.0: 32.0}

CASES = tuple(
    Case(
        name=f"epsilon_{epsilon:g}",
        title=f"ε = {epsilon:g}",
        problem=REGRESSION,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        score_clip_norm=_SCORE_CLIP_NORMS[epsilon],
        paper={
            method: PaperNumber(mean / 1000, std / 1000) for method, (mean, std) in zip(_METHODS, numbers, strict=True)
        },
    )
    for epsilon, (noise_multiplier, *numbers) in _PAPER.items()
)
