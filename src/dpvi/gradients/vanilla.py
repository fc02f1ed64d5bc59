"""Vanilla DPVI: release the gradient of all variational parameters (Jälkö, Dikmen and Honkela 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from dpvi.families.base import Family
from dpvi.gradients.base import keep_draws, pathwise_release, record_free_gradient
from dpvi.models.base import Model, Record


@dataclass(frozen=True)
class Vanilla:
    """r_i = Jᵀ∇_z log p(x_i | z), averaged over draws; ∇ELBO ≈ s̃/κ + ∇(prior + entropy). Any family."""

    num_draws: int = 1

    def __post_init__(self) -> None:
        keep_draws(self)

    def check(self, family: Family) -> None:
        """Exists for every family."""

    def release_size(self, family: Family, dimension: int) -> int:
        return family.num_parameters(dimension)

    def release(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, queries: jax.Array, record: Record
    ) -> jax.Array:
        return pathwise_release(model, family, xi, eta, record)

    def reconstruct(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, noisy_sum: jax.Array, sampling_rate: float
    ) -> jax.Array:
        return noisy_sum / sampling_rate + record_free_gradient(model, family, xi, eta)
