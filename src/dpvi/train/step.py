"""One private step: sample, release, clip, sum, add noise, reconstruct, update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpvi.core.plan import Plan
from dpvi.data.sampling import PoissonSampler, is_complete
from dpvi.families.base import Family
from dpvi.gradients.base import Estimator
from dpvi.mechanism.bounded_sum import bounded_sum
from dpvi.models.base import Model
from dpvi.train.draws import Draws, later_pass


class State(NamedTuple):
    """What the optimiser carries from step to step; a function of released quantities only."""

    xi: jax.Array
    optimizer: optax.OptState


class Row(NamedTuple):
    """What one step releases."""

    iterate: jax.Array  # ξ before the update
    query: jax.Array  # z, all draws in one vector
    noisy_sum: jax.Array  # s̃
    gradient: jax.Array  # g̃ = −κ ∇_ξ ELBO, reconstructed from s̃


@dataclass(frozen=True)
class Algorithm:
    """Everything a step needs that does not change from step to step; all of it public."""

    model: Model
    family: Family
    estimator: Estimator
    optimizer: optax.GradientTransformation
    plan: Plan
    sampler: PoissonSampler

    def initial(self, location: jax.Array) -> State:
        xi = self.family.initial(location)
        with jax.numpy_dtype_promotion("standard"):  # optimisers are other people's code
            return State(xi, self.optimizer.init(xi))

    def update(self, state: State, gradient: jax.Array) -> State:
        """One ascent step on the ELBO."""
        with jax.numpy_dtype_promotion("standard"):
            updates, optimizer_state = self.optimizer.update(-gradient, state.optimizer, state.xi)
            return State(optax.apply_updates(state.xi, updates), optimizer_state)


def noiseless_sum(
    algorithm: Algorithm,
    records: Any,
    xi: jax.Array,
    eta: jax.Array,
    queries: jax.Array,
    first_positions: jax.Array,
    sampling_stream: jax.Array,
    step: jax.Array,
    one_pass_suffices: bool,
) -> jax.Array:
    """The clipped sum over one Poisson batch, in as many passes as the draw needs. Sensitive: never leaves the step."""
    sampler = algorithm.sampler

    def release(record: Any) -> jax.Array:
        return algorithm.estimator.release(algorithm.model, algorithm.family, xi, eta, queries, record)

    def one_pass(positions: jax.Array) -> jax.Array:
        batch = jax.tree.map(lambda leaf: leaf.at[positions].get(mode="clip"), records)
        return bounded_sum(jax.vmap(release)(batch), positions < sampler.num_records, algorithm.plan.clip_norm)

    def unfinished(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return ~is_complete(sampler, carry[1])

    def another(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        total, last, index = carry
        positions = later_pass(sampler, sampling_stream, step, index, last + 1)
        return total + one_pass(positions), positions[-1], index + 1

    total = one_pass(first_positions)
    if one_pass_suffices:
        return total
    return jax.lax.while_loop(unfinished, another, (total, first_positions[-1], jnp.ones((), jnp.uint32)))[0]


def private_step(
    algorithm: Algorithm,
    records: Any,
    state: State,
    step: jax.Array,
    drawn: Draws,
    sampling_stream: jax.Array,
    query: jax.Array | None,
    one_pass_suffices: bool,
) -> tuple[State, Row]:
    """One step of the mechanism and, unless ``query`` freezes it, of the optimiser.

    ``drawn`` is this step's row of the chunk's randomness. With ``query`` given, records are scored at that point instead of at a draw from q_ξ, and ξ stays where it is.
    """
    plan, family, eta = algorithm.plan, algorithm.family, drawn.eta
    if query is None:
        queries = jax.vmap(family.transform, (None, 0))(state.xi, eta)
    else:
        queries = jnp.broadcast_to(query, (eta.shape[0], query.shape[0]))
    total = noiseless_sum(
        algorithm, records, state.xi, eta, queries, drawn.positions, sampling_stream, step, one_pass_suffices
    )
    noisy_sum = total + plan.noise_scale * drawn.noise
    if query is not None:
        return state, Row(state.xi, queries.reshape(-1), noisy_sum, jnp.zeros_like(state.xi))
    gradient = algorithm.estimator.reconstruct(
        algorithm.model, family, state.xi, eta, noisy_sum, plan.sampling_rate
    )
    row = Row(state.xi, queries.reshape(-1), noisy_sum, -plan.sampling_rate * gradient)
    return algorithm.update(state, gradient), row
