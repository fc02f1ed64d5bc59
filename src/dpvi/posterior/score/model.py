"""The law of released scores given the parameters, by simulation.

A release is a noisy sum of clipped scores at a known query point q. For a model that can draw a record, the moments of
the clipped score under any z are numbers that touch no record. With records x_i drawn at z, weights w_i that sum to
one, clipped scores c_i = clip_C(∇_q log p(x_i; q)), scores g_i = ∇_z log p(x_i; z) and N = ``num_records``,

    μ_q(z) = N (Σ w c − B Σ w g)          the mean of the clipped sum; B the regression of c on g, since E g = 0
    A      = ∂μ/∂z = N Σ w c gᵀ           by the score-function identity, so the sampler need not be differentiable
    V      = N Cov_w(c)                   how the clipped sum of N records varies from data set to data set

Blocks j = 1 … J of n_j steps at q_j are used through their weighted mean b̄ = Σ_j a_j b̃_j, a_j = n_j / n, n = Σ n_j,
b̃_j the mean noisy sum over κ. With c̄ = Σ_j a_j c(q_j), it is normal with mean Σ_j a_j μ_{q_j}(z) and covariance

    N Cov(c̄) + (1−κ)/(nκ) N Σ_j a_j E[c(q_j) c(q_j)ᵀ] + σ²C²/(κ²n) I + R

the data, the Poisson batches (each record's term is in or out, so the second moment counts and not the covariance),
the noise, and R = N² Σ_rows (Σ_row w (c̄ − B g − E c̄))²: the Monte Carlo error of μ itself, zero where it is exact.
Where N was estimated, Var(N̂) E[c̄] E[c̄]ᵀ is added.

Where the response is one scalar with a small finite support, the sum over its values is exact (one row of all values,
or one row per covariate draw); elsewhere a row is one draw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpvi.declared import validation
from dpvi.declared.plan import Plan
from dpvi.models.base import GenerativeModel, ModelError
from dpvi.population.covariate_law import CovariateLaw, independent_law
from dpvi.population.covariates import (
    Population,
    check_columns,
    drawn_populations,
    histogram_law,
    public_population,
    released_population,
)
from dpvi.population.generative import (
    check_generative,
    enumerated_response,
    simulate_records,
    with_covariates,
)
from dpvi.posterior.score.blocks import Blocks
from dpvi.release.clip import clip_factor

_RIDGE = 1e-10


class Simulated(NamedTuple):
    """Records for one evaluation of the moments, flat; rows are independent, values within a row are enumerated."""

    records: Any
    rows: int
    values: int
    population: Population


class Moments(NamedTuple):
    """The law of b̄ given z."""

    mean: jax.Array  # (d,): Σ_j a_j μ_{q_j}(z)
    jacobian: jax.Array  # (d, d): ∂ mean / ∂z
    covariance: jax.Array  # (d, d)


@dataclass(frozen=True, eq=False)
class ScoreModel:
    """A model that can draw records and a plan: all that the law of a release depends on, but for the population.

    Parameters
    ----------
    model
        A model that can draw whole records; see :func:`dpvi.population.generative.generative_findings`.
    plan
        Its gradient release gives κ, σ and C.
    num_records
        N, or an estimate of it that was itself released. Not needed where the plan declares the number public or pays
        for histograms. It is never read from records, and an estimate's error is not part of the posterior: it matters
        little where the query points are near the answer, because the mean score there is near zero.
    covariate_law
        The law of data leaves that no site observes, ``covariate_law(key, n)``. By default they are drawn from the
        histograms that the plan pays for.
    num_simulated
        M, the number of simulated rows, where rows are drawn.
    seed
        Seeds the simulation, not the mechanism. The same draws serve every z (common random numbers). Functions that
        take another ``seed`` use it without compiling anew.
    """

    model: GenerativeModel
    plan: Plan
    num_records: float | None = None
    covariate_law: CovariateLaw | None = None
    num_simulated: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        columns = self.plan.covariates
        if self.plan.clipping is not None:
            raise ModelError(
                [
                    "The score posterior simulates releases that are clipped to one fixed norm, with noise "
                    "of one size, and this plan clips by layers or adapts its clip norm."
                ]
            )
        law = (
            self.covariate_law
            if columns is None or self.covariate_law is not None
            else histogram_law(self.model, (), independent_law((), jnp.zeros(0)))
        )
        check_generative(self.model, law)
        if self.counts_covariates:
            check_columns(self.model, columns or ())
        validation.num_records(self.num_simulated)
        declared = self.plan.num_records
        if self.num_records is None and declared is None and columns is None:
            raise ValueError(
                "The score posterior needs the number of records: declare it public with dpvi.plan(num_records=...), "
                "let the plan pay for it with dpvi.plan(covariates=[...]), or pass num_records= from a release of your "
                "own."
            )
        if None not in (self.num_records, declared) and self.num_records != declared:
            raise ValueError(f"num_records is {self.num_records}, but the plan declares {declared} public records.")
        if self.num_records is not None and not self.num_records > 0:
            raise ValueError(f"num_records must be positive, got {self.num_records!r}.")
        with jax.enable_x64(True):
            object.__setattr__(self, "_response", enumerated_response(self.model))

    @property
    def counts_covariates(self) -> bool:
        """Whether covariates are drawn from released histograms."""
        return self.plan.covariates is not None and self.covariate_law is None

    def population(self, histograms: Any = None) -> Population:
        """Who was measured: from released ``histograms`` where the plan has them, else as declared."""
        if self.plan.covariates is not None and histograms is not None:
            found = released_population(self.plan, histograms)
            return found if self.num_records is None else found._replace(num_records=self.num_records, variance=0.0)
        declared = self.num_records if self.num_records is not None else self.plan.num_records
        if declared is None or self.counts_covariates:
            raise ValueError("This plan pays for histograms, which hold the population; pass those of the trace.")
        return public_population(declared)

    def populations(self, histograms: Any, count: int, seed: int) -> list[Population]:
        """Populations that ``histograms`` allow, each as likely; one where the covariates' law is known."""
        found = self.population(histograms)
        return drawn_populations(self.plan, found, count, seed) if self.counts_covariates else [found]

    @property
    def enumerates(self) -> bool:
        """Whether records are all values of the response, weighted by their probabilities, and not draws at z."""
        return self._enumerated is not None

    @property
    def response(self) -> tuple[int, Any] | None:
        """The leaf of the response and all of its values, where records are enumerated."""
        return self._enumerated

    @property
    def exact(self) -> bool:
        """Whether every moment is a finite sum, with no draw in it."""
        return self._enumerated is not None and len(self.model.responses) == self._num_leaves

    @cached_property
    def coarse(self) -> ScoreModel:
        """The same law from an eighth of the draws: good enough to choose a query point, whatever its error."""
        return self if self.exact else replace(self, num_simulated=max(1000, self.num_simulated // 8))

    def key(self, seed: int | None = None) -> jax.Array:
        """The key of ``seed``, or of the model's own."""
        return jax.random.key(self.seed if seed is None else seed)

    def simulate(self, z: jax.Array, key: jax.Array, population: Population) -> Simulated:
        """Records at ``z``; with one key for every z, common random numbers. In float64 inside ``jax.enable_x64``."""
        law = self.covariate_law
        if self.counts_covariates:
            law = histogram_law(self.model, self.plan.covariates or (), population.law)
        if self._enumerated is None:
            records = simulate_records(self.model, z, key, self.num_simulated, law)
            return Simulated(records, self.num_simulated, 1, population)
        index, support = self._enumerated
        rows = 1 if self.exact else self.num_simulated
        leaves, treedef = jax.tree.flatten(with_covariates(self.model, key, rows, law))
        dtype = leaves[index].dtype
        leaves = [jnp.repeat(leaf, len(support), axis=0) for leaf in leaves]
        leaves[index] = jnp.tile(jnp.asarray(support), rows).astype(dtype)
        return Simulated(jax.tree.unflatten(treedef, leaves), rows, len(support), population)

    def scores(self, z: jax.Array, records: Any) -> jax.Array:
        """g_i = ∇_z log p(x_i; z), (M, d)."""
        return jax.vmap(jax.grad(self.model.log_likelihood), (None, 0))(z, records)

    def clipped_scores(self, query: jax.Array, records: Any) -> jax.Array:
        """c_i = clip_C(∇_q log p(x_i; q)) as the mechanism clips, for every query point: (M, J, d)."""
        scores = jax.vmap(jax.vmap(jax.grad(self.model.log_likelihood), (0, None)), (None, 0))(query, records)
        factor = clip_factor(scores, self.plan.clip_norm)[..., None]
        return factor * jnp.where(factor > 0, scores, 0.0)

    def weights(self, z: jax.Array, simulated: Simulated, reference: jax.Array | None = None) -> jax.Array:
        """The weight of each record under z, (M,), summing to one.

        Enumerated values have their probabilities, rows equal weight. Draws have equal weight where they were made at
        z; where they were made at ``reference``, p(x_i; z) / p(x_i; reference), normalised.
        """
        rows, values = simulated.rows, simulated.values
        if self._enumerated is None and reference is None:
            return jnp.full(rows, 1.0 / rows)
        log_likelihoods = jax.vmap(self.model.log_likelihood, (None, 0))
        terms = log_likelihoods(z, simulated.records)
        if self._enumerated is not None:
            return jnp.ravel(jax.nn.softmax(terms.reshape(rows, values), axis=1)) / rows
        assert reference is not None
        return jax.nn.softmax(terms - log_likelihoods(reference, simulated.records))

    def moments(
        self, blocks: Blocks, simulated: Simulated, clipped: jax.Array, weights: jax.Array, scores: jax.Array
    ) -> Moments:
        """Mean, Jacobian and covariance of b̄; see the head of this module.

        Parameters
        ----------
        blocks
            q_j and n_j.
        simulated, clipped, weights, scores
            Records, c_i (M, J, d), w_i (M,) and g_i (M, d).
        """
        num_steps = jnp.sum(blocks.steps)
        share = blocks.steps / num_steps
        data = self.data_moments(simulated, jnp.einsum("j,mjd->md", share, clipped), weights, scores)
        size, dimension = simulated.population.num_records, scores.shape[1]
        rooted = (jnp.sqrt(weights[:, None] * share)[..., None] * clipped).reshape(-1, dimension)
        second = size * rooted.T @ rooted
        noise = self.noise_variance * jnp.eye(dimension)
        return data._replace(covariance=data.covariance + (self.batch_factor * second + noise) / num_steps)

    def data_moments(self, simulated: Simulated, combined: jax.Array, weights: jax.Array, scores: jax.Array) -> Moments:
        """Mean, Jacobian and covariance of Σ_i c̄_i over data sets at z, any c̄ (M, D), Monte Carlo error included."""
        size = simulated.population.num_records
        average, mean_score = weights @ combined, weights @ scores
        centred = combined - average
        regression, jacobian = _regression(weights, combined, scores - mean_score)
        mean = average - regression @ mean_score
        covariance = size * centred.T @ (weights[:, None] * centred)
        covariance += simulated.population.variance * jnp.outer(mean, mean)
        if simulated.rows > 1:
            residuals = weights[:, None] * (centred - (scores - mean_score) @ regression.T)
            by_row = residuals.reshape(simulated.rows, simulated.values, -1).sum(axis=1)
            covariance += size**2 * by_row.T @ by_row
        return Moments(size * mean, size * jacobian, covariance)

    @property
    def batch_factor(self) -> float:
        """(1−κ)/κ, the variance of a Poisson batch relative to the second moment of the terms."""
        return (1 - self.plan.sampling_rate) / self.plan.sampling_rate

    @property
    def noise_variance(self) -> float:
        """σ²C²/κ², the variance that one step's noise gives s̃/κ."""
        return (self.plan.noise_scale / self.plan.sampling_rate) ** 2

    def target(self, blocks: Blocks) -> jax.Array:
        """b̄ = Σ_j n_j (mean s̃)_j / (n κ)."""
        return blocks.steps @ blocks.mean_noisy_sum / jnp.sum(blocks.steps) / self.plan.sampling_rate

    @property
    def _enumerated(self) -> tuple[int, Any] | None:
        return getattr(self, "_response", None)

    @property
    def _num_leaves(self) -> int:
        return len(jax.tree.leaves(self.model.structure))


def as_float64(population: Population) -> Population:
    """The population as float64 device arrays; call it inside ``jax.enable_x64``."""
    return jax.tree.map(lambda part: jnp.asarray(part, jnp.float64), population)


def _regression(weights: jax.Array, combined: jax.Array, centred: jax.Array) -> tuple[jax.Array, jax.Array]:
    """B with c ≈ B g by weighted least squares, and E[c gᵀ]; a ridge keeps directions without information at zero."""
    information = centred.T @ (weights[:, None] * centred)
    cross = combined.T @ (weights[:, None] * centred)
    ridge = _RIDGE * (jnp.trace(information) + jnp.finfo(information.dtype).tiny) / len(information)
    return jnp.linalg.solve(information + ridge * jnp.eye(len(information)), cross.T).T, cross
