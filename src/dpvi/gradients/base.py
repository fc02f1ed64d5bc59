"""What an estimator is: a pair of pure functions around the release.

``release`` turns one record into the vector that is clipped, summed and noised; ``reconstruct`` turns the noisy sum
into a gradient of the ELBO. Prior and entropy need no record, so they live in ``reconstruct``: never clipped, never
noised. Sums are divided by the sampling rate κ alone; the number of records is not needed.

Shapes: d parameters, K draws of η, p variational parameters, r the length of a release.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp

from dpvi.declared import validation
from dpvi.families.base import Family
from dpvi.models.base import Model, Record


class Estimator(Protocol):
    """A (release, reconstruct) pair."""

    @property
    def num_draws(self) -> int:
        """K, the number of draws of η per step."""
        ...

    def check(self, family: Family) -> None:
        """Raise ``ValueError`` with one sentence if the estimator does not exist for ``family``."""
        ...

    def release_size(self, family: Family, dimension: int) -> int:
        """r."""
        ...

    def release(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, queries: jax.Array, record: Record
    ) -> jax.Array:
        """r_i for one record: xi (p,), eta (K, ·), queries (K, d) the points z = h(ξ, η)."""
        ...

    def reconstruct(
        self, model: Model, family: Family, xi: jax.Array, eta: jax.Array, noisy_sum: jax.Array, sampling_rate: float
    ) -> jax.Array:
        """An estimate of ∇_ξ ELBO (or of the natural gradient), (p,)."""
        ...


@runtime_checkable
class NamedRelease(Protocol):
    """An estimator that can say what each part of its release is the gradient of."""

    def release_names(self, model: Any) -> list[tuple[str, int]]:
        """(name, number of coordinates) of the parts of a release, one after the other."""
        ...


def keep_draws(estimator: Any) -> None:
    """Check an estimator's ``num_draws``, from its ``__post_init__``."""
    validation.keep(estimator, num_draws=validation.whole_number("num_draws", estimator.num_draws))


def describe(estimator: Any) -> dict[str, Any]:
    """Name and settings, as they are stored with a result."""
    if not dataclasses.is_dataclass(estimator):
        raise TypeError(f"An estimator must be a dataclass, so that a result can name its settings, got {estimator!r}.")
    settings = dataclasses.asdict(cast(Any, estimator)).items()
    return {"name": type(estimator).__name__} | {k: list(v) if isinstance(v, tuple) else v for k, v in settings}


def scores(model: Model, queries: jax.Array, record: Record) -> jax.Array:
    """∇_z log p(x_i | z) at each query point, (K, d)."""
    return jax.vmap(jax.grad(model.log_likelihood), (0, None))(queries, record)


def pathwise_release(model: Model, family: Family, xi: jax.Array, eta: jax.Array, record: Record) -> jax.Array:
    """Jᵀ∇_z log p(x_i | z), averaged over draws, (p,).

    Draw by draw: as one more, short inner axis of every array they are much slower on a CPU.
    """

    def of_draw(draw: jax.Array) -> jax.Array:
        return jax.grad(lambda xi: model.log_likelihood(family.transform(xi, draw), record))(xi)

    if eta.shape[0] == 1:
        return of_draw(eta[0])
    total, _ = jax.lax.scan(lambda total, draw: (total + of_draw(draw), None), jnp.zeros_like(xi), eta)
    return total / eta.shape[0]


def record_free_gradient(model: Model, family: Family, xi: jax.Array, eta: jax.Array) -> jax.Array:
    """∇_ξ of the prior term and the entropy: the part of the ELBO that reads no record, (p,)."""
    return pulled_back_gradient(model, family, xi, eta, None)


def pulled_back_gradient(
    model: Model, family: Family, xi: jax.Array, eta: jax.Array, likelihood_scores: jax.Array | None
) -> jax.Array:
    """mean_k J_kᵀ(likelihood_scores_k + ∇log p(z_k)) + ∇H by one reverse pass through h, (p,)."""

    def surrogate(xi: jax.Array) -> jax.Array:
        z = jax.vmap(family.transform, (None, 0))(xi, eta)
        terms = jax.vmap(model.log_prior)(z)
        if likelihood_scores is not None:
            terms = terms + jnp.sum(likelihood_scores * z, axis=-1)
        return jnp.mean(terms) + family.entropy(xi)

    return jax.grad(surrogate)(xi)
