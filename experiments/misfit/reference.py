"""The answer without privacy, what an oracle could release, and the limit: what private answers are held against.

The target of an interval's privacy part is the non-private answer of the same model and prior. It is taken at the mode
of the posterior of unconstrained z, found by Newton's method in double precision, with the inverse negative Hessian
there as its covariance (Laplace). The posterior's mean lies beside the mode, in simulated problems by up to 0.07
non-private standard deviations (log σ), in tables by up to 0.33 (rare levels of Adult); :func:`mean_shift` says how
far, and ``python -m experiments.misfit.reference`` holds both against NUTS.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.models.numpyro import NumPyroModel
from dpvi.privacy.gaussian import gaussian_signal
from experiments.misfit.problems import Problem

_NEWTON_STEPS = 100
_TOLERANCE = 1e-10  # of the squared step in standard deviations
_ROUNDING = 1e-13  # of a log posterior, relative
_CLIPS = np.geomspace(0.3, 60.0, 16)  # in units of √d
_CHUNK = 2000


class Reference(NamedTuple):
    """The non-private answer of a problem on z."""

    mode: np.ndarray  # (d,)
    precision: np.ndarray  # H: minus the Hessian of the log posterior, (d, d)
    scores: np.ndarray  # of every record at the mode, (n, d)

    @property
    def covariance(self) -> np.ndarray:
        """Laplace's: H⁻¹."""
        return np.linalg.inv(self.precision)

    @property
    def sandwich(self) -> np.ndarray:
        """H⁻¹ (Σ g gᵀ) H⁻¹."""
        bread = self.covariance
        return bread @ (self.scores.T @ self.scores) @ bread

    @property
    def sd(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))


class _Functions(NamedTuple):
    """Compiled for one model and shape of the data."""

    value: Callable
    gradient: Callable
    hessian: Callable
    scores: Callable
    log_determinant_slope: Callable  # gradient of log det H
    clipped: Callable  # Jacobian of Σ clip(W g) with respect to z, by clip norm


def reference(problem: Problem) -> Reference:
    """Mode, precision and scores, by Newton's method with halved steps."""
    with jax.enable_x64(True):
        data, functions = _double(problem), _functions_of(problem)
        z = np.zeros(problem.dimension)
        for _ in range(_NEWTON_STEPS):
            gradient, precision = (np.asarray(f(z, data)) for f in (functions.gradient, functions.hessian))
            step = _climb(precision, gradient)
            if gradient @ step < _TOLERANCE:
                return Reference(z, precision, np.asarray(functions.scores(z, data)))
            here = float(functions.value(z, data))
            while not float(functions.value(z + step, data)) >= here - _ROUNDING * abs(here):
                step = step / 2
                if step @ step < 1e-24:
                    raise RuntimeError(f"{problem.name}: no step climbs; is the log posterior finite?")
            z = z + step
    raise RuntimeError(f"{problem.name}: Newton's method did not reach the mode within {_NEWTON_STEPS} steps.")


def mean_shift(problem: Problem, found: Reference) -> np.ndarray:
    """The posterior's mean minus its mode to second order, −½ H⁻¹ ∇ log det H, in non-private deviations, (d,)."""
    with jax.enable_x64(True):
        slope = np.asarray(_functions_of(problem).log_determinant_slope(found.mode, _double(problem)))
    return -0.5 * found.covariance @ slope / found.sd


def limit(problem: Problem, epsilon: float) -> float:
    """√(1 + d/(N μ²)), the width of a private interval over that of a non-private one, to first order."""
    signal = gaussian_signal(epsilon, problem.delta)
    return float(np.sqrt(1 + problem.dimension / (problem.num_records * signal**2)))


class Oracle(NamedTuple):
    """The best single release at the mode."""

    covariance: np.ndarray  # of the privacy part on z, bias included, (d, d)
    clip_norm: float
    metric: str

    def widths(self, found: Reference) -> np.ndarray:
        """Full width over non-private width, by coordinate."""
        sampling = np.diag(found.covariance)
        return np.sqrt((sampling + np.diag(self.covariance)) / sampling)


def oracles(problem: Problem, found: Reference, epsilons: tuple[float, ...]) -> dict[float, Oracle]:
    """For each ε what could be done by one who knows the mode and the curvature, but corrects no bias.

    The whole budget buys Σ clip_C(W g) at the mode, with noise C/μ. With A its Jacobian there (prior included, A → W H
    without clipping) and b = Σ (clip_C(W g) − W g) what clipping bends,

        V = A⁻¹ ((C/μ)² I + b bᵀ) A⁻ᵀ.

    W whitens either the curvature, √N H^(−1/2), or the scores, (E g gᵀ)^(−1/2); W and C are those with the least mean
    width.
    """
    best: dict[float, tuple[float, Oracle]] = {}
    n, d = found.scores.shape
    prior = found.precision - _likelihood_precision(problem, found)
    ridge = prior / n  # directions that no record shows have the prior's curvature
    metrics = {
        "curvature": _inverse_root(found.precision / n),
        "scores": _inverse_root(found.scores.T @ found.scores / n + ridge),
    }
    for name, metric in metrics.items():
        for clip in _CLIPS * np.sqrt(d):
            jacobian, bias = _clipped(problem, found, metric, clip)
            inverse = np.linalg.pinv(jacobian + metric @ prior)
            for epsilon in epsilons:
                noise = (clip / gaussian_signal(epsilon, problem.delta)) ** 2
                middle = noise * np.eye(d) + np.outer(bias, bias)
                oracle = Oracle(inverse @ middle @ inverse.T, float(clip), name)
                width = float(np.mean(oracle.widths(found)))
                if epsilon not in best or width < best[epsilon][0]:
                    best[epsilon] = (width, oracle)
    return {epsilon: oracle for epsilon, (_, oracle) in best.items()}


def _climb(precision: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """A Newton step, along which the log posterior climbs even where it is not concave."""
    values, vectors = np.linalg.eigh(precision)
    return vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), 1e-8))


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / np.sqrt(values)) @ vectors.T


def _likelihood_precision(problem: Problem, found: Reference) -> np.ndarray:
    """Minus the Hessian of Σ log p(record | z) at the mode: the Jacobian of scores that are not clipped."""
    jacobian, _ = _clipped(problem, found, np.eye(problem.dimension), np.inf)
    return jacobian


def _clipped(problem: Problem, found: Reference, metric: np.ndarray, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """A of the clipped scores without the prior, and what clipping takes from their sum."""
    with jax.enable_x64(True):
        functions, (x, y) = _functions_of(problem), _double(problem)
        jacobian = np.zeros((problem.dimension,) * 2)
        for start in range(0, len(y), _CHUNK):
            part = x[start : start + _CHUNK], y[start : start + _CHUNK]
            jacobian -= np.asarray(functions.clipped(found.mode, part, metric, clip))
    whitened = found.scores @ metric.T
    norms = np.linalg.norm(whitened, axis=1)
    factor = np.minimum(1.0, clip / np.maximum(norms, 1e-300))
    return jacobian, ((factor - 1)[:, None] * whitened).sum(axis=0)


def _double(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    x, y = problem.data
    return x.astype(np.float64), y.astype(np.float64) if y.dtype.kind == "f" else y


def _functions_of(problem: Problem) -> _Functions:
    x, y = _double(problem)
    return _functions(problem.model, x.shape[1], y.dtype.name)


@cache
def _functions(function: Callable, width: int, dtype: str) -> _Functions:
    """Simulated problems have new records for each seed and the same shapes: compile once."""
    structure = (jax.ShapeDtypeStruct((width,), jnp.dtype("float64")), jax.ShapeDtypeStruct((), jnp.dtype(dtype)))
    model = NumPyroModel(function, structure)

    def value(z: Any, data: Any) -> jax.Array:
        return model.log_prior(z) + jnp.sum(model.record_terms(z, data))

    score = jax.grad(model.log_likelihood)

    def clipped_sum(z: Any, data: Any, metric: Any, clip: Any) -> jax.Array:
        whitened = jax.vmap(score, (None, 0))(z, data) @ metric.T
        squares = jnp.sum(whitened**2, axis=1)
        inside = squares <= clip**2
        factor = jnp.where(inside, 1.0, clip / jnp.sqrt(jnp.where(inside, 1.0, squares)))
        return jnp.sum(jnp.where(inside, 1.0, factor)[:, None] * whitened, axis=0)

    return _Functions(
        jax.jit(value),
        jax.jit(jax.grad(value)),
        jax.jit(lambda z, data: -jax.hessian(value)(z, data)),
        jax.jit(jax.vmap(score, (None, 0))),
        jax.jit(jax.grad(lambda z, data: jnp.linalg.slogdet(-jax.hessian(value)(z, data))[1])),
        jax.jit(jax.jacfwd(clipped_sum)),
    )


def nuts_difference(problem: Problem, num_draws: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """NUTS's mean minus the mode, and its deviations, both in Laplace standard deviations, by coordinate."""
    from numpyro.infer import MCMC, NUTS

    found = reference(problem)
    with jax.enable_x64(True):
        functions, data = _functions_of(problem), _double(problem)
        factor = np.linalg.cholesky(found.covariance)

        def potential(u: Any) -> jax.Array:  # z = mode + factor u: near a standard normal
            return -functions.value(found.mode + factor @ u, data)

        chain = MCMC(
            NUTS(potential_fn=potential, dense_mass=False), num_warmup=300, num_samples=num_draws, progress_bar=False
        )
        chain.run(jax.random.key(seed), init_params=jnp.zeros(problem.dimension))
        draws = np.asarray(chain.get_samples()) @ factor.T
    return draws.mean(axis=0) / found.sd, draws.std(axis=0) / found.sd


if __name__ == "__main__":
    from experiments.misfit.problems import make_problem

    for name in ("linear_t3", "logistic_rare_levels"):
        problem = make_problem(name)
        shift, spread = nuts_difference(problem)
        second = mean_shift(problem, reference(problem))
        print(f"{name}, in non-private sd: NUTS's mean − mode {np.round(shift, 3)}, to second order ", end="")
        print(f"{np.round(second, 3)}; NUTS's sd {np.round(spread, 3)}", flush=True)
