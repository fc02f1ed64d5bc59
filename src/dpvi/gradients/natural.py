"""Natural-gradient DPVI: release Fisher⁻¹ times the gradient (DPVIm, equations 13 to 16). Mean field only."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from dpvi.families.base import Family
from dpvi.families.meanfield import MeanField
from dpvi.gradients.base import keep_draws, pathwise_release, record_free_gradient
from dpvi.models.base import Model, Record


def require_mean_field(name: str, family: Family) -> MeanField:
    if not isinstance(family, MeanField):
        raise ValueError(
            f"{name} needs the inverse Fisher matrix, which exists for MeanField only, not {type(family).__name__}. "
            "Use Aligned(), which works for every family."
        )
    return family


@dataclass(frozen=True)
class Natural:
    """r_i = Fisher⁻¹ vanilla, with Fisher⁻¹ = T² on m and ½(T/T')² on s; prior and entropy follow the same scaling."""

    num_draws: int = 1

    def __post_init__(self) -> None:
        keep_draws(self)

    def check(self, family: Family) -> None:
        require_mean_field("Natural()", family)

    def release_size(self, family: Family, dimension: int) -> int:
        return family.num_parameters(dimension)

    def release(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, queries: jax.Array, record: Record
    ) -> jax.Array:
        inverse_fisher = require_mean_field("Natural()", family).inverse_fisher(xi)
        return inverse_fisher * pathwise_release(model, family, xi, eta, record)

    def reconstruct(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, noisy_sum: jax.Array, sampling_rate: float
    ) -> jax.Array:
        inverse_fisher = require_mean_field("Natural()", family).inverse_fisher(xi)
        return noisy_sum / sampling_rate + inverse_fisher * record_free_gradient(model, family, xi, eta)
