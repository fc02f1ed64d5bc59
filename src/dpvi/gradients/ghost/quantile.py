"""Adaptive quantile clipping: the clip norm follows a quantile of the records' gradient norms (Andrew et al. 2021).

Every step also releases how many sampled records were left unclipped. Centred, each record adds ½ or −½ to that count,
so its sensitivity is ½, and with noise of standard deviation σ_b it is a Gaussian release of multiplier 2σ_b. Gradients
(multiplier σ_g) and count are one Gaussian release of multiplier σ together:

    σ⁻² = σ_g⁻² + (2σ_b)⁻².

A plan accounts σ, as for a fixed clip norm; gradients get the somewhat larger σ_g. The clip norm of a step is computed
from earlier noisy counts alone, so it is public, and the trace has to keep it: noise is σ_g C_t.

References
----------
Andrew, Thakkar, McMahan and Ramaswamy (2021), Differentially private learning with adaptive clipping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dpvi.core import validation


@dataclass(frozen=True)
class QuantileClipping:
    """C_{t+1} = C_t exp(−η(b̃_t − γ)), b̃_t the noisy share of unclipped records.

    Parameters
    ----------
    initial_clip_norm
        C_0; public.
    count_noise
        σ_b, standard deviation of the noise on the centred count, in records. A twentieth of the expected batch is the
        paper's choice.
    expected_batch
        How many records a step samples on average, as far as it is public: it scales the count to a share. A wrong
        number moves the quantile that is followed, never the privacy.
    target_quantile
        γ, the share of records that should stay unclipped.
    learning_rate
        η.

    Examples
    --------
    >>> clipping = QuantileClipping(initial_clip_norm=1.0, count_noise=6.4, expected_batch=128.0)
    >>> round(clipping.gradient_noise_multiplier(1.5), 4)  # the price of the count: 0.7 % more noise
    1.5104
    """

    initial_clip_norm: float
    count_noise: float
    expected_batch: float
    target_quantile: float = 0.5
    learning_rate: float = 0.2

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial_clip_norm", validation.clip_norm(self.initial_clip_norm))
        for name in ("count_noise", "expected_batch", "learning_rate"):
            value = validation.number(name, getattr(self, name))
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be a finite number above 0, got {value!r}.")
        if not 0 < validation.number("target_quantile", self.target_quantile) < 1:
            raise ValueError(f"target_quantile must lie strictly between 0 and 1, got {self.target_quantile!r}.")

    def gradient_noise_multiplier(self, noise_multiplier: float) -> float:
        """σ_g, what the gradients get so that both releases together have multiplier σ = ``noise_multiplier``."""
        sigma = validation.noise_multiplier(noise_multiplier)
        ratio = sigma / (2 * self.count_noise)
        if ratio >= 1:
            raise ValueError(
                f"count_noise {self.count_noise:.6g} is too small for the plan's noise_multiplier {sigma:.6g}: the "
                f"count alone would spend the budget. It has to be above {sigma / 2:.6g}; several times that leaves "
                "the gradients almost untouched."
            )
        return sigma / math.sqrt((1 - ratio) * (1 + ratio))

    def noise_multiplier(self, gradient_noise_multiplier: float) -> float:
        """σ of gradients and count together, the inverse of :meth:`gradient_noise_multiplier`."""
        return 1 / math.hypot(1 / gradient_noise_multiplier, 1 / (2 * self.count_noise))

    def update(self, clip_norm: jax.Array, noisy_count: jax.Array) -> jax.Array:
        """C_{t+1} from C_t and the noisy centred count of step t."""
        unclipped_share = 0.5 + noisy_count / self.expected_batch
        following = clip_norm * jnp.exp(-self.learning_rate * (unclipped_share - self.target_quantile))
        return jnp.clip(following, 1e-20, 1e20)  # the clip norms a plan may have
