"""What a variational family is: a map z = h(ξ, η) from flat parameters ξ and fixed noise η.

Everything is a pure function of flat vectors, so optimisers, traces and noise treat every family alike.
"""

from __future__ import annotations

from typing import Protocol

import jax


class Family(Protocol):
    """A reparameterised distribution on z ∈ R^d with parameters ξ ∈ R^p."""

    def num_parameters(self, dimension: int) -> int:
        """p, the length of ξ."""
        ...

    def num_base(self, dimension: int) -> int:
        """The length of the standard normal η."""
        ...

    def initial(self, location: jax.Array) -> jax.Array:
        """ξ for a start at ``location`` with the family's initial scale."""
        ...

    def transform(self, xi: jax.Array, eta: jax.Array) -> jax.Array:
        """z = h(ξ, η)."""
        ...

    def entropy(self, xi: jax.Array) -> jax.Array:
        """H(q_ξ), a scalar."""
        ...

    def location(self, xi: jax.Array) -> jax.Array:
        """The mean of q_ξ; also the first d entries of ξ in every family here."""
        ...

    def covariance(self, xi: jax.Array) -> jax.Array:
        """The d × d covariance of q_ξ."""
        ...

    def variances(self, xi: jax.Array) -> jax.Array:
        """The d marginal variances of q_ξ."""
        ...

    def log_prob(self, xi: jax.Array, z: jax.Array) -> jax.Array:
        """log q_ξ(z), a scalar."""
        ...
