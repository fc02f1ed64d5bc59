"""Whole runs against arithmetic by hand: what a step releases, how it moves, and what it must not depend on."""

from __future__ import annotations

import logging
import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.small_models import (
    DIMENSION,
    RECORDS,
    block_sums,
    clipped,
    exact_plan,
    location_model,
    many_records,
    private_plan,
)
from support.units import grid, unit

import dpvi
from dpvi.families import MeanField
from dpvi.gradients import Aligned, Vanilla
from dpvi.release.trace import Trace
from dpvi.run import preparation
from dpvi.run.program import chunk, recorder

MODEL = location_model()
FAMILY = MeanField()
RATE = 0.05


def trace_of_fit(plan, records=RECORDS, seed=5, **options) -> Trace:
    options.setdefault("optimizer", optax.sgd(RATE))
    return dpvi.fit(MODEL, records, plan, seed=seed, progress=False, **options).trace


def eta_of(trace: Trace) -> np.ndarray:
    """The variational draws behind the query points of a mean field, (rows, draws, d)."""
    location, raw = trace.iterates[:, None, :DIMENSION], trace.iterates[:, None, DIMENSION:]
    return (trace.queries.reshape(len(trace.steps), -1, DIMENSION) - location) / np.log1p(np.exp(raw))


def gradients_of(trace: Trace, estimator, sampling_rate: float) -> np.ndarray:
    """g̃ of every row, from what the row says was released there."""

    def one(xi, eta, noisy_sum):
        return -sampling_rate * estimator.reconstruct(MODEL, FAMILY, xi, eta, noisy_sum, sampling_rate)

    return np.asarray(jax.vmap(one)(trace.iterates, jnp.asarray(eta_of(trace)), trace.noisy_sums))


@pytest.fixture(scope="module")
def thirty_steps() -> Trace:
    """A private run in 64-bit mode, long enough for whoever looks at single steps."""
    with jax.enable_x64(True):
        return trace_of_fit(private_plan(30))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("estimator", "num_steps"),
    [(Aligned(), 1), (Aligned(), 257), (Vanilla(num_draws=2), 257), (Aligned(num_draws=3), 257)],
    ids=repr,
)
def test_block_sums_follow_from_the_rows(estimator, num_steps):
    trace = trace_of_fit(private_plan(num_steps), estimator=estimator)
    gradients = gradients_of(trace, estimator, 0.5)
    expected = block_sums(trace.iterates, gradients, trace.block_length, np.ones(num_steps, bool))
    for name, one, other in zip(expected._fields, trace.blocks, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("clip_norm", [0.7, np.inf])
def test_a_release_without_noise_is_the_clipped_sum_of_scores_at_the_query(clip_norm):
    trace = trace_of_fit(exact_plan(20, clip_norm=clip_norm))
    expected = [clipped(RECORDS - query, clip_norm).sum(axis=0) for query in trace.queries]
    lost = 0 if np.isinf(clip_norm) else len(RECORDS) * unit(clip_norm)  # what is clipped is cut to whole units
    np.testing.assert_allclose(trace.noisy_sums, expected, rtol=1e-12, atol=lost)


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 70.0])
def test_everything_released_lies_on_a_public_grid(wide, noise_multiplier):
    with jax.enable_x64(wide):
        trace = trace_of_fit(private_plan(40, noise_multiplier=noise_multiplier, clip_norm=0.7))
    spacing = grid(noise_multiplier * 0.7, 0.7)
    on_it = trace.noisy_sums.astype(np.float64) / spacing
    np.testing.assert_array_equal(on_it, np.round(on_it))
    assert np.any(on_it % 2 == 1)


@pytest.mark.parametrize("microbatch_size", [1, 64, 100])
def test_neither_the_order_of_records_nor_microbatches_change_a_bit(microbatch_size):
    """At a sampling rate of 1 every record enters every step, in whatever slot."""
    plan, records = private_plan(10, sampling_rate=1.0), many_records(150)
    expected = trace_of_fit(plan, records)
    order = np.random.default_rng(1).permutation(150)
    for found in (
        trace_of_fit(plan, records[order]),
        trace_of_fit(plan, records, microbatch_size=microbatch_size),
        trace_of_fit(plan, records[::-1], microbatch_size=microbatch_size),
    ):
        np.testing.assert_array_equal(found.noisy_sums, expected.noisy_sums)
        np.testing.assert_array_equal(found.final, expected.final)


@pytest.mark.usefixtures("x64")
def test_several_draws_are_clipped_jointly():
    trace = trace_of_fit(exact_plan(5, clip_norm=0.7), estimator=Aligned(num_draws=3))
    stacked = [np.concatenate([RECORDS - q for q in query.reshape(3, -1)], axis=1) for query in trace.queries]
    expected = [clipped(rows, 0.7).sum(axis=0) for rows in stacked]
    np.testing.assert_allclose(trace.noisy_sums, expected, rtol=0, atol=len(RECORDS) * unit(0.7))


def test_each_update_is_the_optimisers_at_the_released_gradient(thirty_steps):
    trace = thirty_steps
    assert trace.block_length == 1  # so that the blocks hold every g̃
    following = np.vstack([trace.iterates[1:], trace.final])
    np.testing.assert_allclose(following, trace.iterates - RATE / 0.5 * trace.blocks.gradient, rtol=1e-12)


def test_an_aligned_step_by_hand(thirty_steps):
    """g_m = s̃/κ − z, g_s = (η g_m + 1/T(s)) T'(s) for the location model with a softplus mean field."""
    trace = thirty_steps
    location, raw = np.split(trace.iterates[1], 2)
    scale, derivative = np.log1p(np.exp(raw)), 1 / (1 + np.exp(-raw))
    z = trace.queries[1]
    g_location = trace.noisy_sums[1] / 0.5 - z
    g_scale = ((z - location) / scale * g_location + 1 / scale) * derivative
    expected = trace.iterates[1] + RATE * np.concatenate([g_location, g_scale])
    np.testing.assert_allclose(trace.iterates[2], expected, rtol=1e-12)


def test_the_noise_on_a_release_has_the_planned_scale():
    plan = private_plan(300, sampling_rate=1.0, noise_multiplier=2.0, clip_norm=0.7)
    trace = trace_of_fit(plan)
    exact = np.array([clipped(RECORDS - query, 0.7).sum(axis=0) for query in trace.queries])
    ratio = np.sum(((trace.noisy_sums - exact) / plan.noise_scale) ** 2) / trace.noisy_sums.size
    five_errors = 5 * np.sqrt(2 / trace.noisy_sums.size)
    assert abs(ratio - 1) < five_errors
    for wrong in (2 / 3, 3 / 2):  # the test would notice noise of another size
        assert abs(ratio / wrong**2 - 1) > five_errors


def test_iterates_do_not_depend_on_the_chunk_length(monkeypatch):
    plan = private_plan(50)
    long = trace_of_fit(plan)
    monkeypatch.setattr(chunk, "_MAX_CHUNK", 7)
    short = trace_of_fit(plan)
    for name in ("iterates", "noisy_sums", "final"):
        np.testing.assert_array_equal(getattr(short, name), getattr(long, name), err_msg=name)
    np.testing.assert_allclose(short.blocks.gradient, long.blocks.gradient, rtol=1e-12, atol=1e-12)
    assert short.block_length == long.block_length


def test_a_thinned_run_is_the_same_run(monkeypatch):
    plan = private_plan(257)
    whole = trace_of_fit(plan)
    row_bytes = whole.iterates[0].nbytes + whole.queries[0].nbytes + whole.noisy_sums[0].nbytes
    monkeypatch.setattr(recorder, "_MAX_ROW_BYTES", 30 * row_bytes)
    thinned = trace_of_fit(plan)
    assert thinned.thinning == 9
    np.testing.assert_array_equal(thinned.iterates, whole.iterates[::9])
    np.testing.assert_array_equal(thinned.noisy_sums, whole.noisy_sums[::9])
    np.testing.assert_array_equal(thinned.final, whole.final)
    for one, other in zip(thinned.blocks, whole.blocks, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("longest", [2, 3, 1024])  # chunks within a stride, and several strides in one
@pytest.mark.parametrize("broken", [False, True])
def test_a_run_that_keeps_one_step_in_several_is_the_same_run(monkeypatch, longest, broken):
    """Even where a record is broken, at steps that are kept or not."""
    records = np.vstack([RECORDS, [[np.inf, 0.0]]]) if broken else RECORDS
    plan = private_plan(450, sampling_rate=0.02)
    whole = trace_of_fit(plan, records)
    monkeypatch.setattr(chunk, "KEPT_PARAMETERS", 1)
    monkeypatch.setattr(chunk, "_MAX_CHUNK", longest)
    kept = trace_of_fit(plan, records)
    assert kept.thinning == 4
    np.testing.assert_array_equal(kept.noisy_sums, whole.noisy_sums[::4])
    for name in ("iterates", "queries"):
        np.testing.assert_allclose(getattr(kept, name), getattr(whole, name)[::4], rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(kept.final, whole.final, rtol=1e-9)
    assert kept.block_length == whole.block_length == 4
    np.testing.assert_array_equal(kept.blocks.count, 1)
    expected = gradients_of(kept, Aligned(), plan.sampling_rate)
    np.testing.assert_allclose(kept.blocks.gradient, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_several_passes_release_the_same_sum_as_one(monkeypatch):
    plan = exact_plan(20, clip_norm=0.7)
    one_pass = trace_of_fit(plan)
    monkeypatch.setattr(preparation, "_MAX_PASS_ELEMENTS", 2 * DIMENSION)  # two of nine records at a time
    passes = trace_of_fit(plan)
    np.testing.assert_array_equal(passes.noisy_sums, one_pass.noisy_sums)
    np.testing.assert_array_equal(passes.final, one_pass.final)


@pytest.mark.parametrize("slots", [1, 3])
def test_poisson_batches_in_several_passes_have_the_right_mean(monkeypatch, slots):
    num_steps, sampling_rate, query = 400, 0.5, np.array([3.0, -2.0])
    monkeypatch.setattr(preparation, "_MAX_PASS_ELEMENTS", slots * DIMENSION)
    trace = trace_of_fit(
        exact_plan(num_steps, sampling_rate, clip_norm=1.0), driver=lambda _: dpvi.Directive(num_steps, query)
    )
    terms = clipped(RECORDS - query, 1.0)
    deviation = trace.noisy_sums.mean(axis=0) - sampling_rate * terms.sum(axis=0)
    error = np.sqrt(sampling_rate * (1 - sampling_rate) * np.sum(terms**2, axis=0) / num_steps)
    assert np.all(np.abs(deviation) < 5 * error)
    # a sampler that stopped after the first pass of three would lose a third of the sum or more
    assert np.all(np.abs(deviation + sampling_rate * terms.sum(axis=0) / 3) > 5 * error)


@pytest.mark.parametrize(
    ("num_records", "slots", "num_programs"),
    [(71, None, 1), (72, 1, 1), (73, 22, 2)],
    ids=["quick", "careful", "both"],
)
def test_every_program_is_compiled_once(monkeypatch, caplog, num_records, slots, num_programs):
    """What is compiled ahead is what the run calls, and not more than it calls."""
    if slots is not None:
        monkeypatch.setattr(preparation, "_MAX_PASS_ELEMENTS", slots * DIMENSION)
    monkeypatch.setattr(chunk, "_MAX_CHUNK", 4)
    datasets = np.random.default_rng(1).normal(size=(2, num_records, DIMENSION))
    plan = exact_plan(120, 0.2, clip_norm=1.0)
    with caplog.at_level(logging.DEBUG, logger="jax._src.dispatch"):
        dpvi.fit_many(MODEL, datasets, plan, optimizer=optax.sgd(1e-4), seeds=[0, 1], progress=False)
    finished = (re.match(r"Finished XLA compilation of jit\((\w+)\)", line) for line in caplog.messages)
    compiled = Counter(match[1] for match in finished if match)
    assert compiled["run"] == num_programs
    assert compiled["_sampled"] == 1


def test_the_program_that_is_tried_is_the_one_that_runs(caplog):
    """A program of other types would be another one, and the trial would say nothing of what reads the records."""
    with caplog.at_level(logging.DEBUG, logger="jax._src.dispatch"):
        trace_of_fit(private_plan(11))
    finished = (re.match(r"Finished XLA compilation of jit\((\w+)\)", line) for line in caplog.messages)
    compiled = Counter(match[1] for match in finished if match)
    assert compiled["run"] == 1
