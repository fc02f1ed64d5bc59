"""One private step: sample, release, clip, sum, add noise, reconstruct, update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dpvi.backend.compiling import compiled_apart
from dpvi.declared.clipping import PerLayer, QuantileClipping
from dpvi.declared.plan import Plan
from dpvi.families.base import Family
from dpvi.gradients.base import Estimator
from dpvi.gradients.ghost import TermEstimator, clipped_gradient_sum, in_microbatches, uses_ghost_clipping
from dpvi.gradients.ghost.whole_rows import BITS as GHOST_BITS
from dpvi.gradients.named_layers import release_layers
from dpvi.mechanism.bounded_sum import Clipped, bounded_sum
from dpvi.mechanism.gaussian import COUNT_BITS, FORMED_BITS, check_noise_multiplier, noisy
from dpvi.mechanism.layers import Layers
from dpvi.mechanism.quantile_clipping import UNCLIPPED_BOUND, next_clip_norm
from dpvi.models.base import Model
from dpvi.records.sampling import PoissonSampler
from dpvi.records.sharding import Records, Shards
from dpvi.run.placement.feed import Feed
from dpvi.run.program.draws import Draws
from dpvi.run.program.passes import ClippedSum, InMemory, LaterPass, ReadAhead, noiseless_sum

_ACCELERATOR_PART = 256  # slots; fewer leave a graphics processor idle, more are filled up in vain


class State(NamedTuple):
    """What the optimiser carries from step to step; a function of released quantities only."""

    xi: jax.Array
    optimizer: optax.OptState
    clip_norm: jax.Array | None = None  # C_t, where it adapts


class Noise(NamedTuple):
    """Noise multipliers of a step, float64 scalars: arguments of the program, which does not know how much it adds."""

    of_sum: jax.Array  # in units of the clip norm, of a layer or of the step
    of_count: jax.Array  # in units of what one record can move a count by, ½


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
        return self.sampler.slots if self.shards is None else self.shards.slots

    @cached_property
    def layers(self) -> Layers | None:
        """Layers of a release, where the plan clips them apart."""
        return release_layers(self.plan.clipping, self.model, self.family, self.estimator)

    @property
    def forms_releases(self) -> bool:
        """Whether the release of every record is formed."""
        release_size = self.estimator.release_size(self.family, self.model.dimension)
        return not uses_ghost_clipping(self.estimator, release_size)

    @property
    def part_size(self) -> tuple[int | None, bool]:
        """Slots that are worked on at a time, and whether a smaller batch is filled up to as many.

        An accelerator chooses its algorithms by the number of rows, and what a record adds follows in its last digits.
        So that number must not follow from the number of records, unless this one is public.
        """
        if self.microbatch_size is not None or self.plan.num_records is not None or jax.default_backend() == "cpu":
            return self.microbatch_size, False
        return _ACCELERATOR_PART, True

    @property
    def bits(self) -> int:
        """Digits of the unit of sums below the clip norm."""
        return FORMED_BITS if self.forms_releases else GHOST_BITS

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


def noise_of(algorithm: Algorithm) -> Noise:
    """How much noise the plan asks for."""
    plan = algorithm.plan
    gradients, count = plan.noise_multiplier, 0.0
    if isinstance(plan.clipping, PerLayer):
        gradients *= math.sqrt(len(plan.clipping.norms))
    elif plan.clipping is not None:
        gradients = plan.clipping.gradient_noise_multiplier(plan.noise_multiplier)
        count = plan.clipping.count_noise(plan.noise_multiplier) / UNCLIPPED_BOUND
    check_noise_multiplier(max(gradients, count))
    with jax.enable_x64(True):
        # typed, as the trial of the program passes them: for another type another program would be compiled
        return Noise(jnp.asarray(gradients, jnp.float64), jnp.asarray(count, jnp.float64))


def clipped_sum(
    algorithm: Algorithm, xi: jax.Array, eta: jax.Array, queries: jax.Array, clip_norm: jax.Array | None = None
) -> ClippedSum:
    """How a batch of records becomes a sum at this step's points, ``clip_norm`` being C_t where it adapts.

    Releases of single records are formed and added up, unless they are gradients of large networks and the estimator
    can say of which term: those are clipped without being formed.
    """
    model, family, estimator, layers = algorithm.model, algorithm.family, algorithm.estimator, algorithm.layers
    size, fill_up = algorithm.part_size
    bound = algorithm.plan.clip_norm if clip_norm is None else clip_norm
    if not algorithm.forms_releases:
        assert isinstance(estimator, TermEstimator)
        point, term = estimator.per_record_term(model, family, xi, eta, queries)
        options: Any = {"layers": layers, "microbatch_size": size, "fill_up": fill_up}
        return partial(clipped_gradient_sum, term, point, clip_norm=bound, **options)
    release = partial(estimator.release, model, family, xi, eta, queries)

    def formed(batch: Any, included: jax.Array) -> Clipped:
        return bounded_sum(jax.vmap(release)(batch), included, bound, layers)

    # compiled by itself, so that other passes, microbatches and devices compute what a record adds by the same digits
    apart = compiled_apart(formed)
    return apart if size is None else partial(in_microbatches, apart, microbatch_size=size, fill_up=fill_up)


def clip_norms_of(algorithm: Algorithm, clip_norm: jax.Array | None) -> Any:
    """C of every coordinate of a sum, or one for all."""
    if algorithm.layers is not None:
        norms = np.asarray(algorithm.layers.clip_norms)
        return norms[algorithm.layers.labels(sizes_of(algorithm).release)]
    return algorithm.plan.clip_norm if clip_norm is None else clip_norm


def private_step(
    algorithm: Algorithm,
    records: Records,
    state: State,
    drawn: Draws,
    noise: Noise,
    later_pass: LaterPass | None,
    query: jax.Array | None,
) -> tuple[State, Row]:
    """One step of the mechanism and, unless ``query`` freezes it, of the optimiser.

    Parameters
    ----------
    drawn
        This step's randomness.
    noise
        Of the plan; whoever tries the program on simulated records passes other numbers.
    later_pass
        Gives the positions of further passes. ``None`` where the first pass is known to be enough.
    query
        With it, records are scored at that point instead of at a draw from q_ξ, and ξ stays where it is.
    """
    model, family, estimator, plan = algorithm.model, algorithm.family, algorithm.estimator, algorithm.plan
    xi, eta = state.xi, drawn.eta
    if query is None:
        queries = jax.vmap(family.transform, (None, 0))(xi, eta)
    else:
        queries = jnp.broadcast_to(query, (eta.shape[0], query.shape[0]))
    summed = clipped_sum(algorithm, xi, eta, queries, state.clip_norm)
    feed = algorithm.feed
    rows = InMemory(records, drawn.batch) if feed is None else ReadAhead(records, drawn.batch, feed)
    total, count = noiseless_sum(algorithm.sampler, summed, rows, drawn.positions, later_pass, algorithm.shards)
    size = total.shape[0]  # draws come in parts, of which the last may have more
    clip_norms = clip_norms_of(algorithm, state.clip_norm)
    noisy_sum = noisy(total, drawn.noise[:size], noise.of_sum, clip_norms, algorithm.bits, xi.dtype)
    row = Row(xi, queries.reshape(-1), noisy_sum, jnp.zeros_like(xi), state.clip_norm)
    if algorithm.adaptive is not None:
        assert state.clip_norm is not None
        noisy_count = noisy(count, drawn.noise[size], noise.of_count, UNCLIPPED_BOUND, COUNT_BITS, xi.dtype)
        state = state._replace(clip_norm=next_clip_norm(algorithm.adaptive, state.clip_norm, noisy_count))
    if query is not None:
        return state, row
    gradient = estimator.reconstruct(model, family, xi, eta, noisy_sum, plan.sampling_rate)
    return algorithm.update(state, gradient), row._replace(gradient=-plan.sampling_rate * gradient)
