"""Preconditioned DPVI: rescale the release so that noise hits locations and scales alike (DPVIm, equation 17)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dpvi.families.base import Family
from dpvi.families.meanfield import MeanField
from dpvi.gradients.base import keep_draws, pathwise_release, record_free_gradient
from dpvi.models.base import Model, Record


@dataclass(frozen=True)
class Preconditioned:
    """r_i = β ⊙ vanilla, divided by β again after the noise.

    Parameters
    ----------
    beta
        ``None`` for the paper's choice, 1 on locations and 1/T'(s) on scales at the current iterate (mean field
        only); or a fixed public vector, one positive number per variational parameter (any family).
    num_draws
        Draws of η per step, averaged in the release.
    """

    beta: tuple[float, ...] | None = None
    num_draws: int = 1

    def __post_init__(self) -> None:
        keep_draws(self)
        if self.beta is not None:
            try:
                object.__setattr__(self, "beta", tuple(float(b) for b in self.beta))
            except TypeError:
                raise TypeError(f"beta must be a sequence of numbers or None, got {self.beta!r}.") from None
            if not all(0 < b < float("inf") for b in self.beta):
                raise ValueError("beta must hold finite positive numbers, one per variational parameter.")

    def check(self, family: Family) -> None:
        if self.beta is None and not isinstance(family, MeanField):
            raise ValueError(
                f"Preconditioned() scales by 1/T'(s), which exists for MeanField only, not {type(family).__name__}. "
                "Pass a fixed beta, or use Aligned(), which works for every family."
            )

    def release_size(self, family: Family, dimension: int) -> int:
        size = family.num_parameters(dimension)
        if self.beta is not None and len(self.beta) != size:
            raise ValueError(f"beta needs one number per variational parameter: expected {size}, got {len(self.beta)}.")
        return size

    def _beta(self, family: Family, xi: jax.Array) -> jax.Array:
        if self.beta is not None:
            return jnp.asarray(self.beta, xi.dtype)
        assert isinstance(family, MeanField)
        derivatives = family.scale_derivatives(xi)
        return jnp.concatenate([jnp.ones_like(derivatives), 1 / derivatives])

    def release(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, queries: jax.Array, record: Record
    ) -> jax.Array:
        return self._beta(family, xi) * pathwise_release(model, family, xi, eta, record)

    def reconstruct(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, noisy_sum: jax.Array, sampling_rate: float
    ) -> jax.Array:
        vanilla_sum = noisy_sum / self._beta(family, xi)
        return vanilla_sum / sampling_rate + record_free_gradient(model, family, xi, eta)
