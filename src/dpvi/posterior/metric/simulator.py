"""Records drawn from the model at z with given rows of covariates, and what scores of such records are like.

Rows of covariates stay the same for every z; responses are enumerated where their support is small and finite, and
else drawn at a reference point, with weights p(y | z)/p(y | reference) near it: a mean is then smooth in z. With
clipped scores c_j = clip₁(W_j ∇log p(x; q_j)) of block j, scores g = ∇log p(x; z) and weights w,

    m_j = N (Σ w c_j − B_j Σ w g)        the mean of a sum; B the regression of c on g, a control variate
    A_j = ∂m_j/∂z = N Σ w c_j gᵀ         by the score-function identity
    F   = Σ w g gᵀ                       the information of one record
    e_j = c_j − E c_j − B_j (g − E g)    what clipping makes of a record beyond its score: zero where nothing is clipped
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.backend.compiling import SharedProgram
from dpvi.population.generative import simulate_records, with_covariates
from dpvi.posterior.metric.blocks import Blocks
from dpvi.posterior.score.model import ScoreModel

_RIDGE = 1e-10
_FEWEST_ROWS, _FEW_ROWS, _MOST_NUMBERS = 32, 2000, 2**23  # of Hessians


class Expected(NamedTuple):
    """What the model at z expects of blocks of scores."""

    mean: np.ndarray  # (J, d)
    jacobian: np.ndarray  # (J, d, d)
    information: np.ndarray  # (d, d), of one record
    residual: np.ndarray  # (Jd, Jd): E[e eᵀ], of one record
    error: np.ndarray  # (Jd, Jd): the variance that simulating leaves in mean / N
    log_prior: float
    prior_gradient: np.ndarray
    prior_precision: np.ndarray


class Simulator:
    """Simulated records of one model with one set of covariate rows.

    Parameters
    ----------
    scores
        A model that can draw records.
    leaves
        The covariates, one array for every data leaf that no site observes, M rows each; empty where there is none.
    num_records
        N or its estimate.
    seed
        Of the responses.
    """

    def __init__(self, scores: ScoreModel, leaves: list[np.ndarray], num_records: float, seed: int) -> None:
        self._scores = scores
        self.num_records = num_records
        self.leaves = [np.asarray(leaf) for leaf in leaves]
        self.rows = len(leaves[0]) if leaves else scores.num_simulated
        self._drawn = 1 if scores.exact else self.rows
        self._programs = _programs(scores, self._drawn)
        self._key = np.asarray(jax.random.key_data(jax.random.key(seed)))

    def scores(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores at z of records drawn at z, (M, d), and their weights."""
        with jax.enable_x64(True):
            found = self._programs.scores(*self._arrays(z, self._key, self.leaves))
        return np.asarray(found[0]), np.asarray(found[1])

    def expected(self, z: np.ndarray, reference: np.ndarray, blocks: Blocks, spread: bool = True) -> Expected:
        """At z, with responses drawn at ``reference``; without ``spread`` covariances are zero and cost nothing."""
        with jax.enable_x64(True):
            found = self._programs.expected(
                *self._arrays(z, reference, *blocks, self._key, self.leaves, np.float64(self.num_records), spread)
            )
        mean, jacobian, information, residual, error, log_prior, gradient, precision = map(np.asarray, found)
        return Expected(mean, jacobian, information, residual, error, float(log_prior), gradient, precision)

    def information(self, z: np.ndarray) -> np.ndarray:
        """F of one record at z, (d, d)."""
        found, weights = self.scores(z)
        return (found * weights[:, None]).T @ found

    def hessians(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """−∇²log p at z of some records drawn at z, (m, d, d), and their weights: as many as fit into 64 MB."""
        return self._hessians(z, self._key, min(self._drawn, _FEW_ROWS, max(32, _MOST_NUMBERS // len(z) ** 2)))

    def responsive(self, z: np.ndarray) -> bool:
        """Whether the curvature of a record depends on its response: not where the model is a canonical GLM."""
        found, _ = self._hessians(z, self._key, rows := min(self._drawn, _FEWEST_ROWS))
        if self._scores.enumerates:
            found = found.reshape(rows, -1, *found.shape[1:])
            other = found[:, ::-1]
        else:
            other, _ = self._hessians(z, self._key + 1, rows)
        return not np.allclose(found, other, rtol=1e-6, atol=1e-9 * float(np.abs(found).max()))

    def _hessians(self, z: np.ndarray, key: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            found = _hessians(self._scores, rows)(*self._arrays(z, key, [leaf[:rows] for leaf in self.leaves]))
        return np.asarray(found[0]), np.asarray(found[1])

    def prior_precision(self, z: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(self._programs.prior(*self._arrays(z))[2])

    @staticmethod
    def _arrays(*values: Any) -> list[Any]:
        return jax.tree.map(jnp.asarray, list(values))


class _Programs(NamedTuple):
    scores: Any
    expected: Any
    prior: Any


class _Drawing(NamedTuple):
    """How records of a model are drawn."""

    records: Any  # (z, key, leaves) -> records, and how many values of the response each row has
    weights: Any  # (z, reference, records, values) -> (M,)


def _drawing(scores: ScoreModel, rows: int) -> _Drawing:
    model = scores.model

    def records(z: jax.Array, key: jax.Array, leaves: list[jax.Array]) -> Any:
        """Records, and how many values of the response each row has."""
        typed = jax.random.wrap_key_data(key)
        law = (lambda _, n: leaves) if leaves else None
        if not scores.enumerates:
            return simulate_records(model, z, typed, rows, law), 1
        index, support = cast(tuple[int, Any], scores.response)
        parts, treedef = jax.tree.flatten(with_covariates(model, typed, rows, law))
        dtype = parts[index].dtype
        parts = [jnp.repeat(part, len(support), axis=0) for part in parts]
        parts[index] = jnp.tile(jnp.asarray(support), rows).astype(dtype)
        return jax.tree.unflatten(treedef, parts), len(support)

    likelihoods = jax.vmap(model.log_likelihood, (None, 0))

    def weights(z: jax.Array, reference: jax.Array, batch: Any, values: int) -> jax.Array:
        if scores.enumerates:
            return jnp.ravel(jax.nn.softmax(likelihoods(z, batch).reshape(rows, values), axis=1)) / rows
        return jax.nn.softmax(likelihoods(z, batch) - likelihoods(reference, batch))

    return _Drawing(records, weights)


@lru_cache(maxsize=32)
def _hessians(scores: ScoreModel, rows: int) -> Any:
    records, weights = _drawing(scores, rows)
    hessian = jax.vmap(jax.hessian(scores.model.log_likelihood), (None, 0))

    def program(z: jax.Array, key: jax.Array, leaves: list[jax.Array]) -> Any:
        batch, values = records(z, key, leaves)
        return -hessian(z, batch), weights(z, z, batch, values)

    return SharedProgram(program)


@lru_cache(maxsize=32)
def _programs(scores: ScoreModel, rows: int) -> _Programs:
    model = scores.model
    records, weights = _drawing(scores, rows)
    gradients = jax.vmap(jax.grad(model.log_likelihood), (None, 0))

    def of_scores(z: jax.Array, key: jax.Array, leaves: list[jax.Array]) -> Any:
        batch, values = records(z, key, leaves)
        return gradients(z, batch), weights(z, z, batch, values)

    def prior(z: jax.Array) -> Any:
        spread, vectors = jnp.linalg.eigh(-jax.hessian(model.log_prior)(z))
        precision = (vectors * jnp.maximum(spread, 0.0)) @ vectors.T
        return model.log_prior(z), jax.grad(model.log_prior)(z), precision

    def expected(z, reference, query, metric, key, leaves, size, spread) -> Any:
        batch, values = records(reference, key, leaves)
        weight = weights(z, reference, batch, values)
        score = gradients(z, batch)
        centred = score - weight @ score
        information = centred.T @ (weight[:, None] * centred)
        ridge = _RIDGE * (jnp.trace(information) + jnp.finfo(information.dtype).tiny) / len(z)
        regularised = information + ridge * jnp.eye(len(z))

        def block(point: jax.Array, white: jax.Array) -> Any:
            stretched = gradients(point, batch) @ white.T
            length = jnp.linalg.norm(stretched, axis=1)
            clipped = stretched / jnp.maximum(length, 1.0)[:, None]
            average = weight @ clipped
            cross = (clipped - average).T @ (weight[:, None] * centred)
            regression = jnp.linalg.solve(regularised, cross.T).T
            rest = clipped - average - centred @ regression.T
            return size * (average - regression @ (weight @ score)), size * cross, rest

        mean, jacobian, rest = jax.lax.map(lambda one: block(*one), (query, metric))

        def covariances(rest: jax.Array) -> Any:
            stacked = jnp.moveaxis(rest, 0, 1).reshape(len(weight), -1)
            weighed = weight[:, None] * stacked
            by_row = weighed.reshape(rows, -1, stacked.shape[1]).sum(axis=1)
            residual = stacked.T @ weighed
            return residual, by_row.T @ by_row if rows > 1 else jnp.zeros_like(residual)

        nothing = jnp.zeros((query.size, query.size), rest.dtype)
        residual, error = jax.lax.cond(spread, covariances, lambda _: (nothing, nothing), rest)
        return mean, jacobian, information, residual, error, *prior(z)

    return _Programs(SharedProgram(of_scores), SharedProgram(expected), SharedProgram(prior))
