"""The methods of a coverage study: one entry of :data:`METHODS` each.

A method is a function of a group of data sets and of the results of the run it names (none where it makes its own). It
returns, for every data set, draws of z, log densities of the marginals at the truth and the centre around which
reference points are drawn. To add one, write such a function and an entry.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from dpvi.declared.validation import ConvergenceWarning
from dpvi.evaluate import log_score
from dpvi.posterior import Result
from dpvi.posterior.gaussian import Gaussian
from dpvi.posterior.na_dpvi import MeanFieldMixture
from dpvi.posterior.na_dpvi.model import trace_statistics
from dpvi.posterior.score import NotConvergedError
from experiments.coverage.case import DELTA, Problem
from experiments.coverage.runs import Group, Study
from studies.baselines.bernstein_sheldon import GaussianMechanism, LaplaceMechanism

BURN_IN = 0.2


class Posteriors(NamedTuple):
    """Posteriors of k data sets on the unconstrained scale."""

    draws: np.ndarray  # (k, S, d), float32
    log_scores: np.ndarray  # (k, d): marginal log densities at the truth
    centres: np.ndarray | None  # (k, d), centres of reference points; None for each posterior's own mean
    num_drifting: int = 0  # runs whose iterates had not settled

    @classmethod
    def join(cls, parts: list[Posteriors]) -> Posteriors:
        """Those of several groups, in order."""
        draws, scores, centres, drifting = zip(*parts, strict=True)
        joined = None if centres[0] is None else np.concatenate(centres)
        return cls(np.concatenate(draws), np.concatenate(scores), joined, sum(drifting))


PosteriorsOf = Callable[[Group, list[Result]], Posteriors]


class Method(NamedTuple):
    """A row of a table.

    Attributes
    ----------
    title
        What the table calls it.
    posteriors
        The function described above.
    run
        Name of the run in :data:`~experiments.coverage.runs.RUNS` whose results it reads; ``None`` for one that makes
        its own, which then gets an empty list.
    paper
        Key of the paper's number, where it has one.
    slow
        Take only the first data sets, as many as the study has for slow methods.
    applies
        Whether the method exists for a problem.
    """

    title: str
    posteriors: PosteriorsOf
    run: str | None = None
    paper: str | None = None
    slow: bool = False
    applies: Callable[[Problem], bool] = lambda problem: True

    def num_data_sets(self, study: Study) -> int:
        """How many of the study's data sets the method is run on."""
        return min(study.num_data_sets, study.num_slow_data_sets) if self.slow else study.num_data_sets


def from_result(method: str, **options: Any) -> PosteriorsOf:
    """Posteriors by ``result.posterior(method, **options)``; those of runs that diverged are NaN."""

    def posteriors(group: Group, results: list[Result]) -> Posteriors:
        rows = [_one(group, position, result) for position, result in enumerate(results)]
        draws, scores, centres, drifting = zip(*rows, strict=True)
        return Posteriors(np.stack(draws), np.stack(scores), np.stack(centres), sum(drifting))

    def _one(group: Group, position: int, result: Result) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        dimension, rng = group.case.problem.dimension, group.generator(position)
        if not np.all(np.isfinite(result.trace.final)):
            nothing = np.full((group.study.num_draws, dimension), np.nan, np.float32)
            return nothing, nothing[0].astype(np.float64), nothing[0].astype(np.float64), False
        # draws of φ* that every data set shares would give all of them one Monte Carlo error
        key = {"key": jax.random.key(int(rng.integers(2**31)))} if method == "na_dpvi" else {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            distribution = result.posterior(method, **options, **key).distribution
        drifting = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
        means, sds = mixture_components(distribution)
        score = log_score((means[None], sds[None]), group.truths[position][None])[0]
        centre = trace_statistics(result.trace, BURN_IN).phi_mean[:dimension]
        return mixture_draws(rng, means, sds, group.study.num_draws), score, centre, drifting

    return posteriors


def mixture_components(distribution: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the components of every marginal, (M, d)."""
    if isinstance(distribution, Gaussian):
        return distribution.mean[None].astype(np.float64), distribution.standard_deviations[None].astype(np.float64)
    if isinstance(distribution, MeanFieldMixture):
        return distribution.locations.astype(np.float64), distribution.scales.astype(np.float64)
    raise TypeError(f"No mixture form is known for {type(distribution).__name__}; write its method as a function.")


def mixture_draws(rng: np.random.Generator, means: np.ndarray, sds: np.ndarray, num_draws: int) -> np.ndarray:
    """(num_draws, d) draws of independent coordinates, each a mixture of equally likely normals."""
    index = rng.integers(0, len(means), (num_draws, means.shape[1]))
    location, scale = (np.take_along_axis(part, index, axis=0) for part in (means, sds))
    return (location + scale * rng.standard_normal(index.shape)).astype(np.float32)


def nonprivate(group: Group, results: list[Result]) -> Posteriors:
    """The exact conjugate posterior given the records: what a method would show if privacy were free."""
    draws, scores = [], []
    for position, truth in enumerate(group.truths):
        records = jax.tree.map(lambda leaf, at=position: leaf[at], group.records)
        exact = group.case.problem.conjugate(records)
        draws.append(exact.sample(group.generator(position), group.study.num_draws).astype(np.float32))
        scores.append(exact.marginal_log_density(truth))
    return Posteriors(np.stack(draws), np.stack(scores), None)


def score(group: Group, results: list[Result]) -> Posteriors:
    """The default posterior of a run that measured, a dense Gaussian; data sets without one (not found) are NaN."""
    shape = (len(results), group.study.num_draws, group.case.problem.dimension)
    draws, scores = np.full(shape, np.nan, np.float32), np.full((shape[0], shape[2]), np.nan)
    for position, result in enumerate(results):
        try:
            gaussian = result.posterior("score", check=False).distribution
        except NotConvergedError:
            continue
        mean, factor = gaussian.mean.astype(np.float64), gaussian.scale.astype(np.float64)
        draws[position] = mean + group.generator(position).standard_normal(shape[1:]) @ factor.T
        sds = np.sqrt(np.sum(factor**2, axis=1))
        scores[position] = log_score((mean[None, None], sds[None, None]), group.truths[position][None])[0]
    return Posteriors(draws, scores, None)


def bernstein_sheldon(mechanism: str, sampler: str | None = None) -> PosteriorsOf:
    """Noise-aware conjugate Gibbs sampling, with Laplace noise as published or Gaussian noise for the same (ε, δ)."""

    def posteriors(group: Group, results: list[Result]) -> Posteriors:
        epsilon, problem = group.case.epsilon, group.case.problem
        noise = LaplaceMechanism(epsilon) if mechanism == "laplace" else GaussianMechanism(epsilon, DELTA)
        arguments = (group.records, noise, group.seeds, group.study.num_draws)
        if sampler is None:
            assert problem.bernstein_sheldon is not None
            draws = problem.bernstein_sheldon(*arguments)
        else:
            assert problem.regression_baseline is not None
            draws = problem.regression_baseline(*arguments, sampler)
        # its density is known only as an average over sums that were never released: no log score
        return Posteriors(draws.astype(np.float32), np.full(group.truths.shape, np.nan), None)

    return posteriors


def _has_baseline(problem: Problem) -> bool:
    return problem.bernstein_sheldon is not None


def _has_regression_baseline(problem: Problem) -> bool:
    return problem.regression_baseline is not None


METHODS: Mapping[str, Method] = {
    "nonprivate": Method("exact posterior, not private", nonprivate),
    "naive": Method("naive (last iterate)", from_result("last"), "na_dpvi", paper="naive"),
    "averaged": Method("averaged iterates", from_result("average"), "na_dpvi"),
    "dpvim": Method("DPVIm, Adam", from_result("stationary"), "dpvim", paper="dpvim"),
    "dpvim_descent": Method("DPVIm, gradient descent", from_result("stationary"), "dpvim_descent", paper="dpvim"),
    "exact": Method("NA-DPVI, exact", from_result("na_dpvi"), "na_dpvi", paper="nuts"),
    "laplace": Method("NA-DPVI, Laplace", from_result("na_dpvi", engine="laplace"), "na_dpvi", paper="laplace"),
    "nuts": Method("NA-DPVI, NUTS", from_result("na_dpvi", engine="nuts"), "na_dpvi", paper="nuts", slow=True),
    "wide_prior": Method(
        "NA-DPVI, prior scale 10 on locations", from_result("na_dpvi", location_prior_scale=10.0), "na_dpvi"
    ),
    "tight": Method("NA-DPVI, exact, tight noise", from_result("na_dpvi"), "tight_na_dpvi"),
    "score": Method("score posterior", score, "score"),
    "score_histograms": Method(
        "score posterior, paid histograms", score, "score_histograms", applies=lambda problem: bool(problem.columns)
    ),
    "bernstein_sheldon": Method(
        "Bernstein-Sheldon, Laplace noise", bernstein_sheldon("laplace"), None, "bernstein_sheldon", False,
        _has_baseline,
    ),
    "bernstein_sheldon_gaussian": Method(
        "Bernstein-Sheldon, Gaussian noise", bernstein_sheldon("gaussian"), None, None, False, _has_baseline
    ),
    "gibbs_ss_prior": Method(
        "Gibbs-SS-Prior, Gaussian noise", bernstein_sheldon("gaussian", "prior"), None, "bernstein_sheldon", True,
        _has_regression_baseline,
    ),
    "gibbs_ss_update": Method(
        "Gibbs-SS-Update, Gaussian noise", bernstein_sheldon("gaussian", "update"), None, "bernstein_sheldon", True,
        _has_regression_baseline,
    ),
}  # fmt: skip
