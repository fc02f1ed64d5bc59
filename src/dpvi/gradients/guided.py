"""Vanilla DPVI for an arbitrary guide: release the gradient of a record's ELBO term (Jälkö, Dikmen and Honkela 2017).

The term of a record is log p(l_i, x_i | g) − log q(l_i | x_i, g) at one draw of the global latents g, which all
records of a step share, and one of the record's own latents l_i; its gradient with respect to all parameters of guide
and model is what is clipped and noised. log p(g) − log q(g) reads no record and stays outside clip and noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp

from dpvi.families.base import Family
from dpvi.families.guide import GuideFamily
from dpvi.gradients.base import keep_draws
from dpvi.models.base import Record
from dpvi.models.numpyro.guides import GuidedModel


@dataclass(frozen=True)
class Guided:
    """r_i = ∇_ξ term(ξ, η, key_i, x_i), averaged over draws; ∇ELBO ≈ s̃/κ + ∇_ξ(log p(g) − log q(g)).

    Parameters
    ----------
    num_draws
        Draws of all latents per step.
    closed_form
        Take KL(q ‖ p) of a record's own latents by formula where NumPyro has one, as its ``TraceMeanField_ELBO`` does,
        rather than at the draw, as ``Trace_ELBO`` does: less noise in what is clipped.

    Guarantees
    ----------
    key_i is a hash of η and x_i, so r_i is a function of x_i and what is public: for every η, adding or removing a
    record changes the clipped sum by one clipped vector and nothing else.
    """

    num_draws: int = 1
    closed_form: bool = True

    def __post_init__(self) -> None:
        keep_draws(self)

    def check(self, family: Family) -> None:
        if not isinstance(family, GuideFamily):
            raise ValueError(
                f"Guided() is the gradient of a guide, and {type(family).__name__} is none: pass guide=..., or use "
                "Vanilla(), its counterpart for families."
            )

    def release_size(self, family: Family, dimension: int) -> int:
        return family.num_parameters(dimension)

    def release_names(self, model: Any) -> list[tuple[str, int]]:
        """The arrays of all parameters of guide and model."""
        return cast(GuidedModel, model).parameters.arrays()

    def per_record_term(
        self, model: Any, family: Family, xi: jax.Array, eta: jax.Array, queries: jax.Array
    ) -> tuple[jax.Array, Callable[[jax.Array, Record], jax.Array]]:
        """ξ and the number per record whose gradient there is the release, for clipping that never forms it."""
        guided = cast(GuidedModel, model)

        def term(xi: jax.Array, record: Record) -> jax.Array:
            def at(seed: jax.Array) -> jax.Array:
                return guided.term(xi, seed, guided.own_key(seed, record), record, self.closed_form)

            return at(eta[0]) if self.num_draws == 1 else jnp.mean(jax.vmap(at)(eta))  # no axis of one around a network

        return xi, term

    def release(
        self, model: Any, family: Family, xi: jax.Array, eta: jax.Array, queries: jax.Array, record: Record
    ) -> jax.Array:
        point, term = self.per_record_term(model, family, xi, eta, queries)
        return jax.grad(term)(point, record)

    def reconstruct(
        self, model: Any, family: Family, xi: jax.Array, eta: jax.Array, noisy_sum: jax.Array, sampling_rate: float
    ) -> jax.Array:
        def record_free(xi: jax.Array) -> jax.Array:
            return jnp.mean(jax.vmap(cast(GuidedModel, model).record_free, (None, 0))(xi, eta))

        return noisy_sum / sampling_rate + jax.grad(record_free)(xi)
