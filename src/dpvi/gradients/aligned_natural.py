"""Aligned natural DPVI: release T² times the gradient of z, derive that of the scales (DPVIm, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from dpvi.families.base import Family
from dpvi.gradients.base import keep_draws, pulled_back_gradient, scores
from dpvi.gradients.natural import require_mean_field
from dpvi.models.base import Model, Record


@dataclass(frozen=True)
class AlignedNatural:
    """r_i = T(s)² ⊙ ∇_z log p(x_i | z); locations as natural, scales ½(T/T')²(η T' g̃_m + ∇_s H) with g̃_m un-scaled.

    Mean field only. With several draws the release is stacked and clipped jointly.
    """

    num_draws: int = 1

    def __post_init__(self) -> None:
        keep_draws(self)

    def check(self, family: Family) -> None:
        require_mean_field("AlignedNatural()", family)

    def release_size(self, family: Family, dimension: int) -> int:
        return self.num_draws * dimension

    def release(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, queries: jax.Array, record: Record
    ) -> jax.Array:
        return (family.variances(xi) * scores(model, queries, record)).reshape(-1)

    def reconstruct(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, noisy_sum: jax.Array, sampling_rate: float
    ) -> jax.Array:
        mean_field = require_mean_field("AlignedNatural()", family)
        noisy_scores = noisy_sum.reshape(self.num_draws, -1) / (sampling_rate * family.variances(xi))
        return mean_field.inverse_fisher(xi) * pulled_back_gradient(model, family, xi, eta, noisy_scores)
