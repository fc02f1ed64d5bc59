"""The two ways to make a sum private: Laplace noise for pure ε, as published, and Gaussian noise for (ε, δ).

Randomness comes from the cipher that also serves training, and noise is made in float64 by inversion of 64-bit
uniforms. As everywhere in this library, attacks on the last bits of floating-point numbers are outside the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared import validation
from dpvi.declared.guarantee import Guarantee
from dpvi.mechanism.normals import normals_from_words
from dpvi.mechanism.rng import root_key, step_words, streams
from dpvi.privacy import plan
from studies.baselines.bernstein_sheldon.noise import GaussianNoise, LaplaceNoise, Noise

_ASSUMPTIONS = (
    "Bounds were declared without looking at the records.",
    "The number of records is declared public and is not protected: it is the same with and without one record.",
    "Sums and noise are floating-point numbers; attacks on their last bits are outside the statement.",
)


class Sensitivity(NamedTuple):
    """How far one record, added or removed, can move a vector of sums, in the L1 and in the L2 norm."""

    l1: float
    l2: float


class Mechanism(Protocol):
    """From sensitivities to noise, and from random words to its unit form."""

    def calibrate(self, sensitivities: Sequence[Sensitivity]) -> list[Noise]: ...

    def standard_noise(self, words: jax.Array) -> jax.Array: ...


@dataclass(frozen=True)
class LaplaceMechanism:
    """Pure ε-differential privacy; several releases share ε equally.

    Guarantees
    ----------
    Adding noise of scale b = Δ₁/(ε/n) to each of n releases of L1 sensitivity Δ₁ is (ε, 0)-private under add/remove
    adjacency.

    Examples
    --------
    >>> LaplaceMechanism(epsilon=0.1).calibrate([Sensitivity(l1=1.0, l2=1.0)])
    [LaplaceNoise(scale=10.0)]
    """

    epsilon: float

    def __post_init__(self) -> None:
        validation.epsilon(self.epsilon)

    def calibrate(self, sensitivities: Sequence[Sensitivity]) -> list[Noise]:
        """The noise of each release."""
        share = self.epsilon / len(sensitivities)
        return [LaplaceNoise(sensitivity.l1 / share) for sensitivity in sensitivities]

    def standard_noise(self, words: jax.Array) -> jax.Array:
        """Laplace variables of scale 1 from pairs of 32-bit words, (2n, …) → (n, …) float64; needs 64-bit mode."""
        size = words.shape[0] // 2
        high, low = words[:size], words[size:] >> np.uint32(11)
        # one bit is the sign, 52 bits a uniform whose midpoints are neither 0 nor 1
        count = (high & np.uint32(0x7FFFFFFF)).astype(jnp.float64) * 2.0**21 + low.astype(jnp.float64)
        magnitude = -jnp.log((count + 0.5) * 2.0**-52)
        return jnp.where(high >> np.uint32(31) == 0, magnitude, -magnitude)

    @property
    def guarantee(self) -> Guarantee:
        """The statement a release by this mechanism makes."""
        return Guarantee(self.epsilon, 0.0, "add_remove", "one record", "the Laplace mechanism", _ASSUMPTIONS, True)


@dataclass(frozen=True)
class GaussianMechanism:
    """(ε, δ)-differential privacy by Gaussian noise, calibrated by the library's accountant for one joint release.

    Guarantees
    ----------
    Adding N(0, (σΔ₂)²) to each of n releases of L2 sensitivity Δ₂, with σ the noise multiplier that
    ``dpvi.plan(epsilon, delta, sampling_rate=1, num_steps=n)`` finds, is (ε, δ)-private under add/remove adjacency.

    Examples
    --------
    >>> (noise,) = GaussianMechanism(epsilon=0.1, delta=1e-5).calibrate([Sensitivity(l1=3.0, l2=2.0)])
    >>> round(noise.scale, 2)
    61.5
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        validation.epsilon(self.epsilon)
        validation.delta(self.delta)

    def calibrate(self, sensitivities: Sequence[Sensitivity]) -> list[Noise]:
        """The noise of each release."""
        multiplier = _gaussian_multiplier(self.epsilon, self.delta, len(sensitivities))
        return [GaussianNoise(multiplier * sensitivity.l2) for sensitivity in sensitivities]

    def standard_noise(self, words: jax.Array) -> jax.Array:
        """Standard normals from pairs of 32-bit words, (2n, …) → (n, …) float64; needs 64-bit mode."""
        return normals_from_words(words)

    @property
    def guarantee(self) -> Guarantee:
        """The statement a release by this mechanism makes."""
        accountant = "the exact privacy curve of the Gaussian mechanism"
        return Guarantee(self.epsilon, self.delta, "add_remove", "one record", accountant, _ASSUMPTIONS, True)


@lru_cache(maxsize=64)  # a study releases many data sets under one budget
def _gaussian_multiplier(epsilon: float, delta: float, num_releases: int) -> float:
    return plan(epsilon=epsilon, delta=delta, sampling_rate=1.0, num_steps=num_releases, clip_norm=1.0).noise_multiplier


def add_noise(
    sums: Sequence[np.ndarray], sensitivities: Sequence[Sensitivity], mechanism: Mechanism, seed: int | None
) -> list[tuple[np.ndarray, Noise]]:
    """Each of ``sums`` with the noise that ``mechanism`` asks for, and the law of that noise.

    Parameters
    ----------
    sums
        Vectors of sums over the records.
    sensitivities
        Of each vector, in the same order.
    mechanism
        Whose budget covers all of them together.
    seed
        None takes fresh randomness from the operating system. A whole number makes the noise repeatable, which is for
        studies of simulated records only: who knows the seed knows the sums.
    """
    stream = streams(root_key(seed)).noise
    noisy = []
    for index, (vector, noise) in enumerate(zip(sums, mechanism.calibrate(sensitivities), strict=True)):
        with jax.enable_x64(True):
            words = step_words(stream, jnp.array([index], jnp.uint32), 2 * vector.size)
            unit = np.asarray(mechanism.standard_noise(words))[:, 0]
        noisy.append((vector + noise.scale * unit, noise))
    return noisy
