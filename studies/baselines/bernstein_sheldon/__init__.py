"""Noise-aware conjugate Gibbs samplers of Bernstein and Sheldon (2018, 2019).

``release_*`` see records and spend a budget; everything else sees releases only.
"""

from studies.baselines.bernstein_sheldon.chain import stack_releases
from studies.baselines.bernstein_sheldon.covariates import NormalInverseWishart, known_covariates
from studies.baselines.bernstein_sheldon.exponential_family import (
    BetaBernoulli,
    DirichletCategorical,
    GammaExponential,
    sample_conjugate,
)
from studies.baselines.bernstein_sheldon.exponential_family_release import (
    release_bernoulli,
    release_categorical,
    release_exponential,
)
from studies.baselines.bernstein_sheldon.mechanism import GaussianMechanism, LaplaceMechanism, Sensitivity
from studies.baselines.bernstein_sheldon.moments import CovariateMoments
from studies.baselines.bernstein_sheldon.noise import GaussianNoise, LaplaceNoise, NoisyRegression, NoisySums
from studies.baselines.bernstein_sheldon.regression import (
    NormalInverseGamma,
    RegressionDraws,
    gibbs_ss_noisy,
    gibbs_ss_prior,
    gibbs_ss_update,
)
from studies.baselines.bernstein_sheldon.regression_release import release_regression

__all__ = [
    "BetaBernoulli",
    "CovariateMoments",
    "DirichletCategorical",
    "GammaExponential",
    "GaussianMechanism",
    "GaussianNoise",
    "LaplaceMechanism",
    "LaplaceNoise",
    "NoisyRegression",
    "NoisySums",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "RegressionDraws",
    "Sensitivity",
    "gibbs_ss_noisy",
    "gibbs_ss_prior",
    "gibbs_ss_update",
    "known_covariates",
    "release_bernoulli",
    "release_categorical",
    "release_exponential",
    "release_regression",
    "sample_conjugate",
    "stack_releases",
]
