"""One private step: sample, release, clip, sum, add noise, reconstruct, update."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpvi.core.clipping import PerLayer, QuantileClipping
from dpvi.core.plan import Plan
from dpvi.data.sampling import PoissonSampler
from dpvi.data.sharding import Shards
from dpvi.families.base import Family
from dpvi.gradients.base import Estimator
from dpvi.gradients.ghost import TermEstimator, clipped_gradient_sum_and_count, in_microbatches, uses_ghost_clipping
from dpvi.gradients.named_layers import release_layers
from dpvi.mechanism.bounded_sum import Clipped, bounded_sum_and_count
from dpvi.mechanism.layers import Layers
from dpvi.mechanism.quantile_clipping import next_clip_norm
from dpvi.models.base import Model
from dpvi.train.draws import Draws
from dpvi.train.feed import Feed
from dpvi.train.passes import ClippedSum, InMemory, LaterPass, ReadAhead, noiseless_sum


class State(NamedTuple):
    """What the optimiser carries from step to step; a function of released quantities only."""

    xi: jax.Array
    optimizer: optax.OptState
    clip_norm: jax.Array | None = None  # C_t, where it adapts


class Row(NamedTuple):
    """What one step releases."""

    iterate: jax.Array  # ξ before the update
    query: jax.Array  # z, all draws in one vector
    noisy_sum: jax.Array  # s̃
    gradient: jax.Array  # g̃ = −κ ∇_ξ ELBO, reconstructed from s̃
    clip_norm: jax.Array | None = None  # C_t, where it adapts


@dataclass(frozen=True)
class Algorithm:
    """Everything a step needs that does not change from step to step; all of it public."""

    model: Model
    family: Family
    estimator: Estimator
    optimizer: optax.GradientTransformation
    plan: Plan
    sampler: PoissonSampler
    microbatch_size: int | None = None  # most slots whose releases are held at a time; time and memory, nothing else
    shards: Shards | None = None  # where records are spread over devices
    feed: Feed | None = None  # where records are read from disk

    @property
    def slots(self) -> int:
        """Slots of a pass on one device."""
        return self.sampler.physical_size if self.shards is None else self.shards.slots

    @cached_property
    def layers(self) -> Layers | None:
        """Layers of a release, where the plan clips them apart."""
        return release_layers(self.plan.clipping, self.model, self.family, self.estimator)

    @property
    def forms_releases(self) -> bool:
        """Whether the release of every record is formed. If not, one that is not finite adds nothing to a sum."""
        size = self.slots if self.microbatch_size is None else min(self.microbatch_size, self.slots)
        release_size = self.estimator.release_size(self.family, self.model.dimension)
        return not uses_ghost_clipping(self.estimator, release_size, size)

    @property
    def adaptive(self) -> QuantileClipping | None:
        """How the clip norm moves, where it does."""
        return self.plan.clipping if isinstance(self.plan.clipping, QuantileClipping) else None

    def initial(self, location: jax.Array) -> State:
        xi = self.family.initial(location)
        clip_norm = None if self.adaptive is None else jnp.asarray(self.plan.clip_norm, xi.dtype)
        with jax.numpy_dtype_promotion("standard"):  # optimisers are other people's code
            return State(xi, self.optimizer.init(xi), clip_norm)

    def update(self, state: State, gradient: jax.Array) -> State:
        """One ascent step on the ELBO."""
        with jax.numpy_dtype_promotion("standard"):
            updates, optimizer_state = self.optimizer.update(-gradient, state.optimizer, state.xi)
            return state._replace(xi=jnp.asarray(optax.apply_updates(state.xi, updates)), optimizer=optimizer_state)


class Sizes(NamedTuple):
    """Lengths of one step's vectors."""

    parameters: int  # p
    queries: int  # draws times d
    release: int  # r
    base: int  # length of η
    counts: int = 0  # 1 where a step also releases the count of unclipped records

    @property
    def noise(self) -> int:
        """How many normals the mechanism needs."""
        return self.release + self.counts

    @property
    def rows(self) -> tuple[int, int, int]:
        """Widths of what a trace keeps of a step: iterate, query points, noisy sum."""
        return self.parameters, self.queries, self.release


def sizes_of(algorithm: Algorithm) -> Sizes:
    dimension, draws = algorithm.model.dimension, algorithm.estimator.num_draws
    return Sizes(
        parameters=algorithm.family.num_parameters(dimension),
        queries=draws * dimension,
        release=algorithm.estimator.release_size(algorithm.family, dimension),
        base=algorithm.family.num_base(dimension),
        counts=int(algorithm.adaptive is not None),
    )


def clipped_sum(
    algorithm: Algorithm,
    xi: jax.Array,
    eta: jax.Array,
    queries: jax.Array,
    careful: bool,
    clip_norm: jax.Array | None = None,
) -> ClippedSum:
    """How a batch of records becomes a sum at this step's points, ``clip_norm`` being C_t where it adapts.

    Releases of single records are formed and added up, unless they are gradients of large networks and the estimator
    can say of which term: those are clipped without being formed.
    """
    model, family, estimator, layers = algorithm.model, algorithm.family, algorithm.estimator, algorithm.layers
    size = algorithm.microbatch_size
    bound = algorithm.plan.clip_norm if clip_norm is None else clip_norm
    if not algorithm.forms_releases:
        assert isinstance(estimator, TermEstimator)
        point, term = estimator.per_record_term(model, family, xi, eta, queries)
        return partial(
            clipped_gradient_sum_and_count, term, point, clip_norm=bound, layers=layers, microbatch_size=size
        )
    release = partial(estimator.release, model, family, xi, eta, queries)

    def formed(batch: Any, included: jax.Array) -> Clipped:
        return bounded_sum_and_count(jax.vmap(release)(batch), included, bound, careful, layers)

    return formed if size is None else partial(in_microbatches, formed, microbatch_size=size)


def noise_scale(algorithm: Algorithm, clip_norm: jax.Array | None) -> float | jax.Array:
    """Standard deviation of the noise on a sum: one number, or one for every coordinate where layers have their own."""
    plan, layers = algorithm.plan, algorithm.layers
    if isinstance(plan.clipping, PerLayer):
        assert layers is not None
        scales = plan.clipping.noise_scales(plan.noise_multiplier)
        return jnp.concatenate([jnp.full(n, scales[i]) for n, i in zip(layers.sizes, layers.owners or (), strict=True)])
    if plan.clipping is None:
        return plan.noise_scale
    assert clip_norm is not None
    return plan.clipping.gradient_noise_multiplier(plan.noise_multiplier) * clip_norm


def private_step(
    algorithm: Algorithm,
    records: Any,
    state: State,
    drawn: Draws,
    later_pass: LaterPass | None,
    query: jax.Array | None,
) -> tuple[State, Row]:
    """One step of the mechanism and, unless ``query`` freezes it, of the optimiser.

    Parameters
    ----------
    drawn
        This step's randomness.
    later_pass
        Gives the positions of further passes. ``None`` for the quick step: the first pass is known to be enough, and
        should a release that was formed not be finite, neither is the step's row, and the step has to be taken again
        with care.
    query
        With it, records are scored at that point instead of at a draw from q_ξ, and ξ stays where it is.
    """
    model, family, estimator, plan = algorithm.model, algorithm.family, algorithm.estimator, algorithm.plan
    xi, eta = state.xi, drawn.eta
    if query is None:
        queries = jax.vmap(family.transform, (None, 0))(xi, eta)
    else:
        queries = jnp.broadcast_to(query, (eta.shape[0], query.shape[0]))
    summed = clipped_sum(algorithm, xi, eta, queries, later_pass is not None, state.clip_norm)
    feed = algorithm.feed
    rows = InMemory(records, drawn.batch) if feed is None else ReadAhead(drawn.batch, feed)
    total, count = noiseless_sum(algorithm.sampler, summed, rows, drawn.positions, later_pass, algorithm.shards)
    noise = drawn.noise[: total.high.shape[0]]  # draws come in parts, of which the last may have more
    noisy_sum = total.high + (total.low + noise_scale(algorithm, state.clip_norm) * noise)
    row = Row(xi, queries.reshape(-1), noisy_sum, jnp.zeros_like(xi), state.clip_norm)
    if algorithm.adaptive is not None:
        assert state.clip_norm is not None
        scale, own_noise = algorithm.adaptive.count_noise(plan.noise_multiplier), drawn.noise[total.high.shape[0]]
        noisy_count = count.high + (count.low + scale * own_noise)
        state = state._replace(clip_norm=next_clip_norm(algorithm.adaptive, state.clip_norm, noisy_count))
    if query is not None:
        return state, row
    gradient = estimator.reconstruct(model, family, xi, eta, noisy_sum, plan.sampling_rate)
    return algorithm.update(state, gradient), row._replace(gradient=-plan.sampling_rate * gradient)
