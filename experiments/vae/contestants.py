"""Training with privacy and without, each compiled once and then run as often as asked.

Private is what ``fit`` and ``DPSVI.run`` do: exact Poisson batches, clipping without per-image gradients, ChaCha20
noise, a recorded trace. Not private is NumPyro's own ``SVI.update`` with the same network and optimiser in one compiled
loop per epoch, on batches of fixed size from a shuffle of the images. Both take the divergence of a code's law from its
prior in closed form.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, TraceMeanField_ELBO

import dpvi
from dpvi.declared.validation import ConvergenceWarning
from dpvi.gradients.guided import Guided
from dpvi.mechanism.rng import root_key, streams
from dpvi.records.arrays import structure_of
from dpvi.run.fitting import make_result, start
from dpvi.run.preparation import prepare
from dpvi.run.program.loop import Run
from dpvi.run.program.step import Algorithm
from experiments.common.missing_cells import ignoring
from experiments.vae.network import black_and_white, guide, model, of_grey_images
from experiments.vae.problem import Problem, network_sizes
from experiments.vae.settings import Settings


class Reading(NamedTuple):
    """What the paper's text leaves open about the loss of an image."""

    grey: bool = False  # images as they are, and not made black and white
    closed_form: bool = True  # the divergence of the code's law from its prior by formula, and not at a draw


class Trained(NamedTuple):
    """What one training took and found."""

    seconds: float
    parameters: dict[str, Any]  # after the last step
    averaged: dict[str, Any] | None = None  # those of the default posterior, where there is one


def make_plan(settings: Settings) -> dpvi.Plan:
    """The plan of a run at the noise multiplier of the paper."""
    return dpvi.plan(
        delta=settings.delta,
        sampling_rate=settings.sampling_rate,
        num_steps=settings.num_steps,
        clip_norm=settings.clip_norm,
        noise_multiplier=settings.noise_multiplier,
    )


def prepared(
    problem: Problem, settings: Settings, plan: dpvi.Plan, reading: Reading = Reading()
) -> tuple[Algorithm, Any]:
    """The algorithm of a private run and the records, as ``fit`` prepares them."""
    parts = (model, guide) if reading.grey else map(of_grey_images, (model, guide))
    decoder, encoder = (partial(part, **network_sizes(settings)) for part in parts)
    ready = prepare(
        decoder,
        problem.train,
        plan,
        guide=encoder,
        estimator=Guided(closed_form=reading.closed_form),
        optimizer=optax.adam(settings.learning_rate),
        seed=0,
    )
    return ready.algorithm, ready.placed.records


def private(
    problem: Problem, settings: Settings, plan: dpvi.Plan, reading: Reading = Reading()
) -> Callable[[int], Trained]:
    """A function of the seed that trains with privacy; compiled when first called."""
    algorithm, records = prepared(problem, settings, plan, reading)
    run, structure = Run(algorithm), structure_of(records.rows)
    guided: Any = algorithm.model

    def train(seed: int) -> Trained:
        run_streams = streams(root_key(seed))
        state = algorithm.initial(start(algorithm, None))
        jax.block_until_ready((state, records))
        started = time.perf_counter()
        trace = run(records, run_streams, state)[0]
        taken = time.perf_counter() - started
        with ignoring(ConvergenceWarning):  # a network still learns; the loss shows it
            averaged = make_result(algorithm, trace, structure, seed).posterior().params
        return Trained(taken, guided.parameters.constrain(jnp.asarray(trace.final)), averaged)

    return train


def svi(settings: Settings) -> SVI:
    """NumPyro's own inference with the same network and optimiser."""
    parts = (partial(part, **network_sizes(settings)) for part in (model, guide))
    return SVI(*parts, optax.adam(settings.learning_rate), TraceMeanField_ELBO())


def not_private(problem: Problem, settings: Settings) -> Callable[[int], Trained]:
    """A function of the seed that trains without privacy, as many steps as the private run."""
    inference, size, num_steps = svi(settings), settings.batch_size, settings.num_steps
    images = jnp.asarray(problem.train)
    per_epoch = len(problem.train) // size

    def one(index: jax.Array, carry: tuple[Any, jax.Array], order: jax.Array) -> tuple[Any, jax.Array]:
        state, key = carry
        chosen = jax.lax.dynamic_slice_in_dim(order, index * size, size)
        batch = black_and_white(jax.random.fold_in(key, index), images[chosen])
        with jax.numpy_dtype_promotion("standard"):  # NumPyro's own code mixes kinds of numbers
            return inference.update(state, batch)[0], key

    @partial(jax.jit, static_argnames="stop")  # an accelerator repeats a loop faster that need not ask when to end
    def epoch(state: Any, key: jax.Array, stop: int) -> Any:
        shuffling, pixels = jax.random.split(key)
        order = jax.random.permutation(shuffling, len(problem.train))
        return jax.lax.fori_loop(0, stop, partial(one, order=order), (state, pixels))[0]

    def train(seed: int) -> Trained:
        key = jax.random.key(seed)
        with jax.numpy_dtype_promotion("standard"):
            state = inference.init(jax.random.fold_in(key, 0), jnp.asarray(np.round(problem.train[:size])))
        jax.block_until_ready(state)
        started = time.perf_counter()
        for index, first in enumerate(range(0, num_steps, per_epoch)):
            state = epoch(state, jax.random.fold_in(key, 1 + index), stop=min(per_epoch, num_steps - first))
        jax.block_until_ready(state)
        return Trained(time.perf_counter() - started, inference.get_params(state))

    return train
