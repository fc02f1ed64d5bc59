"""Aligned DPVI: release the gradient of z alone and derive every variational gradient from it (DPVIm, Algorithm 1).

∇_ξ of the likelihood term is Jᵀ∇_z with a Jacobian that reads no record, so the scales cost no privacy, whatever
the family: mean field, full rank and low rank release the same d numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from dpvi.families.base import Family
from dpvi.gradients.base import keep_draws, pulled_back_gradient, scores
from dpvi.models.base import Model, Record


@dataclass(frozen=True)
class Aligned:
    """r_i = ∇_z log p(x_i | z); g_ξ = Jᵀ(s̃/κ + ∇log p(z)) + ∇H by one reverse pass through h. Any family.

    With several draws the release is the stacked vector of all scores, clipped jointly.
    """

    num_draws: int = 1

    def __post_init__(self) -> None:
        keep_draws(self)

    def check(self, family: Family) -> None:
        """Exists for every family."""

    def release_size(self, family: Family, dimension: int) -> int:
        return self.num_draws * dimension

    def release_names(self, model: Any) -> list[tuple[str, int]]:
        """The model's sites, once for every draw."""
        return [(site.name, site.size) for site in getattr(model, "sites", ())] * self.num_draws

    def release(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, queries: jax.Array, record: Record
    ) -> jax.Array:
        return scores(model, queries, record).reshape(-1)

    def reconstruct(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, noisy_sum: jax.Array, sampling_rate: float
    ) -> jax.Array:
        noisy_scores = noisy_sum.reshape(self.num_draws, -1) / sampling_rate
        return pulled_back_gradient(model, family, xi, eta, noisy_scores)
