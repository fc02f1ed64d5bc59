"""Noise-aware posteriors of three conjugate models from noisy sums alone (Bernstein and Sheldon, 2018).

The sampler alternates between what was not released and what is wanted. With z = s + e the noisy sums, ω the variances
of the noise, and μ(θ), Σ(θ) mean and covariance of one record's statistics:

    s | θ, ω, z ∝ N(s; Nμ(θ), NΣ(θ)) N(z; s, diag ω)   on the values that sums can have,
    θ | s                                             conjugate,
    ω | s, z                                          see :mod:`.noise`; known where the noise is Gaussian.

The first line replaces the law of s by its central limit, the method's one approximation. It makes s real where counts
are whole, so posteriors are good where N is not small; at 50 coin tosses they are within a few hundredths of a
standard deviation of the exact ones (the tests enumerate them).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from studies.baselines.bernstein_sheldon.chain import run_chains
from studies.baselines.bernstein_sheldon.noise import NoisySums
from studies.baselines.bernstein_sheldon.truncated_normal import truncated_normal

_FLOOR = 1e-12  # of a record's variance, in squared ranges: θ at the edge of its space leaves Σ(θ) singular


class ConjugateModel(Protocol):
    """A prior and a law of records, as the sampler needs them; every hyperparameter is a leaf of a pytree."""

    def check(self, release: NoisySums) -> None:
        """Refuse a release of another kind of records."""
        ...

    def draw(self, key: jax.Array) -> jax.Array:
        """θ from the prior."""
        ...

    def moments(self, theta: jax.Array, release: NoisySums) -> tuple[jax.Array, jax.Array]:
        """Mean (m,) and covariance (m, m) of one record's statistics."""
        ...

    def limits(self, sums: jax.Array, index: int, release: NoisySums) -> tuple[Any, Any]:
        """The values that sum ``index`` can have, given the others."""
        ...

    def update(self, key: jax.Array, sums: jax.Array, theta: jax.Array, release: NoisySums) -> jax.Array:
        """θ given the sums; ``theta`` is its last value, for models with something left to fill in."""
        ...


class BetaBernoulli(NamedTuple):
    """θ ~ Beta(``alpha``, ``beta``), x | θ ~ Bernoulli(θ)."""

    alpha: jax.Array | float
    beta: jax.Array | float

    def check(self, release: NoisySums) -> None:
        _check_size(release, 1, "release_bernoulli")

    def draw(self, key: jax.Array) -> jax.Array:
        return jax.random.beta(key, self.alpha, self.beta)

    def moments(self, theta: jax.Array, release: NoisySums) -> tuple[jax.Array, jax.Array]:
        return theta[None], (theta * (1 - theta))[None, None]

    def limits(self, sums: jax.Array, index: int, release: NoisySums) -> tuple[Any, Any]:
        return 0.0, release.num_records

    def update(self, key: jax.Array, sums: jax.Array, theta: jax.Array, release: NoisySums) -> jax.Array:
        return jax.random.beta(key, self.alpha + sums[0], self.beta + release.num_records - sums[0])


class DirichletCategorical(NamedTuple):
    """θ ~ Dirichlet(``concentration``), x | θ ~ Categorical(θ); the sums are the counts of all classes but the last."""

    concentration: jax.Array | np.ndarray

    def check(self, release: NoisySums) -> None:
        _check_size(release, np.size(self.concentration) - 1, "release_categorical")

    def draw(self, key: jax.Array) -> jax.Array:
        return jax.random.dirichlet(key, jnp.asarray(self.concentration))

    def moments(self, theta: jax.Array, release: NoisySums) -> tuple[jax.Array, jax.Array]:
        share = theta[:-1]
        return share, jnp.diag(share) - jnp.outer(share, share)

    def limits(self, sums: jax.Array, index: int, release: NoisySums) -> tuple[Any, Any]:
        return 0.0, release.num_records - (jnp.sum(sums) - sums[index])

    def update(self, key: jax.Array, sums: jax.Array, theta: jax.Array, release: NoisySums) -> jax.Array:
        last = release.num_records - jnp.sum(sums)
        counts = jnp.maximum(jnp.append(sums, last), 0)  # rounding of the last one
        return jax.random.dirichlet(key, jnp.asarray(self.concentration) + counts)


class GammaExponential(NamedTuple):
    """θ ~ Gamma(``shape``, rate ``rate``), x | θ ~ Exponential of rate θ; the sum is one of clamped waiting times.

    With c = min(max(x, a), b) the sampler draws s = Σc as in every family, then Σx given Σc and θ from the central
    limit of the pair, then θ | Σx ~ Gamma(shape + N, rate + Σx). The last needs no Σc: Σx is sufficient for θ.
    """

    shape: jax.Array | float
    rate: jax.Array | float

    def check(self, release: NoisySums) -> None:
        _check_size(release, 1, "release_exponential")

    def draw(self, key: jax.Array) -> jax.Array:
        return jax.random.gamma(key, self.shape) / self.rate

    def moments(self, theta: jax.Array, release: NoisySums) -> tuple[jax.Array, jax.Array]:
        mean, variance, _ = clamped_exponential_moments(theta, release.lower, release.upper)
        return mean[None], variance[None, None]

    def limits(self, sums: jax.Array, index: int, release: NoisySums) -> tuple[Any, Any]:
        return release.num_records * release.lower, release.num_records * release.upper

    def update(self, key: jax.Array, sums: jax.Array, theta: jax.Array, release: NoisySums) -> jax.Array:
        total_key, theta_key = jax.random.split(key)
        size = release.num_records
        mean, variance, covariance = clamped_exponential_moments(theta, release.lower, release.upper)
        slope = covariance / variance
        centre = size / theta + slope * (sums[0] - size * mean)
        spread = jnp.sqrt(size * jnp.maximum(theta**-2 - slope * covariance, _FLOOR * theta**-2))
        # no waiting time is negative, and above a none is below its clamped value
        least = jnp.maximum(sums[0] - size * release.lower, 0)
        total = truncated_normal(total_key, centre, spread, least, jnp.asarray(jnp.inf))
        return jax.random.gamma(theta_key, self.shape + size) / (self.rate + total)


def clamped_exponential_moments(theta: Any, lower: Any, upper: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """E[c], Var[c] and Cov[x, c] of c = min(max(x, a), b), x exponential of rate θ.

    With P(t) = P(x > t) = exp(−θt): E[c] = a + ∫P(t)dt, E[(c−a)²] = 2∫(t−a)P(t)dt and E[x(c−a)] = ∫(t + 1/θ)P(t)dt, all
    over t from a = ``lower`` to b = ``upper``.

    Examples
    --------
    >>> mean, variance, covariance = clamped_exponential_moments(2.0, 0.0, 100.0)  # hardly clamped
    >>> float(mean), float(variance), float(covariance)
    (0.5, 0.25, 0.25)
    """
    theta = jnp.asarray(theta)
    width = theta * (upper - lower)
    above = jnp.exp(-theta * lower)
    first = -above * jnp.expm1(-width) / theta
    second = 2 * above * (-jnp.expm1(-width) - width * jnp.exp(-width)) / theta**2
    product = second / 2 + (lower + 1 / theta) * first
    return lower + first, second - first**2, product - first / theta


class _State(NamedTuple):
    theta: jax.Array
    sums: jax.Array
    variances: jax.Array


def sample_conjugate(
    release: NoisySums, model: ConjugateModel, key: jax.Array, *, num_burn_in: int = 1000, num_draws: int = 4000
) -> np.ndarray:
    """Draws of θ given a release, by Gibbs sampling in 64-bit mode.

    Parameters
    ----------
    release
        One release, or several of equal shape from :func:`stack_releases`.
    model
        :class:`BetaBernoulli`, :class:`DirichletCategorical` or :class:`GammaExponential` with the prior's parameters.
    key
        A PRNG key. It decides nothing that privacy rests on.
    num_burn_in, num_draws
        Sweeps that are dropped and sweeps that are kept.

    Returns
    -------
    numpy.ndarray
        (num_draws,) or (num_draws, classes), after a leading axis of data sets where there are several.

    References
    ----------
    Bernstein and Sheldon (2018), Differentially private Bayesian inference for exponential families.

    Examples
    --------
    >>> from studies.baselines.bernstein_sheldon.noise import LaplaceNoise
    >>> release = NoisySums(np.array([1250.0]), LaplaceNoise(10.0), 5000, 0.0, 1.0)
    >>> draws = sample_conjugate(release, BetaBernoulli(10.0, 10.0), jax.random.key(0))
    >>> draws.shape, round(float(draws.mean()), 2)
    ((4000,), 0.25)
    """
    model.check(release)
    return run_chains(
        _start,
        _sweep,
        _theta_of,
        (release,),
        (model,),
        key,
        several=np.ndim(release.sums) == 2,
        num_burn_in=num_burn_in,
        num_draws=num_draws,
    )


def _theta_of(state: _State) -> jax.Array:
    return state.theta


def _start(key: jax.Array, release: NoisySums, model: ConjugateModel) -> _State:
    theta_key, noise_key = jax.random.split(key)
    theta = model.draw(theta_key)
    sums = release.num_records * model.moments(theta, release)[0]
    return _State(theta, sums, release.noise.initial_variances(noise_key, sums.size))


def _sweep(key: jax.Array, state: _State, release: NoisySums, model: ConjugateModel) -> _State:
    sums_key, noise_key, theta_key = jax.random.split(key, 3)
    sums = _draw_sums(sums_key, state, release, model)
    variances = release.noise.variances(noise_key, release.sums - sums)
    return _State(model.update(theta_key, sums, state.theta, release), sums, variances)


def _draw_sums(key: jax.Array, state: _State, release: NoisySums, model: ConjugateModel) -> jax.Array:
    """s from its conditional Gaussian on the values it can have.

    One sum is drawn exactly. Several are first proposed together, and stay where they were if the proposal is not
    possible: a Metropolis step with acceptance one or zero. Then each is drawn given the others, which moves them also
    where nearly all of the Gaussian lies outside.
    """
    mean, covariance = model.moments(state.theta, release)
    size = mean.size
    floor = _FLOOR * (release.upper - release.lower) ** 2
    precision = jnp.linalg.inv(release.num_records * (covariance + floor * jnp.eye(size)))
    posterior = precision + jnp.diag(1 / state.variances)
    pull = precision @ (release.num_records * mean) + release.sums / state.variances
    centre = jnp.linalg.solve(posterior, pull)
    block_key, *keys = jax.random.split(key, size + 1)
    sums = state.sums
    if size > 1:
        root = jnp.linalg.cholesky(posterior)
        step = jax.scipy.linalg.solve_triangular(root.T, jax.random.normal(block_key, (size,)), lower=False)
        sums = jnp.where(_possible(centre + step, release, model), centre + step, sums)
    for index in range(size):
        spread = jax.lax.rsqrt(posterior[index, index])
        others = posterior[index] @ (sums - centre) - posterior[index, index] * (sums - centre)[index]
        limits = model.limits(sums, index, release)
        drawn = truncated_normal(keys[index], centre[index] - others * spread**2, spread, *limits)
        sums = sums.at[index].set(drawn)
    return sums


def _possible(sums: jax.Array, release: NoisySums, model: ConjugateModel) -> jax.Array:
    inside = []
    for index in range(sums.size):
        lower, upper = model.limits(sums, index, release)
        inside.append((sums[index] >= lower) & (sums[index] <= upper))
    return jnp.all(jnp.stack(inside))


def _check_size(release: NoisySums, size: int, function: str) -> None:
    if np.shape(release.sums)[-1] != size:
        raise ValueError(
            f"This model has {size} noisy sum(s), but the release holds {np.shape(release.sums)[-1]}. "
            f"Make the release with {function}(...), and declare as many classes as the prior has."
        )
