"""Attack 4: the number of records shows in the order in which a trace's numbers were added.

A trace holds rows, and float64 sums of their squares over blocks of steps. Steps run in chunks, and sums were made one
chunk after the other. How many steps fit into a chunk depends on the number of records, and sums of floats depend on
their order: whoever adds up the saved rows in the order of each candidate and compares bits reads off the number.
With d = 3, rate 1 and 20,000 steps, 10,907 records run in chunks of 192 steps and 10,908 in chunks of 96: of 624 sums
in the saved file all 624 match the one order and about 440 the other. ε = 0.1 was stated; every file was told.

Now sums follow windows of a length that plan and model decide, whatever the chunks are. Files of runs over 40 to 1,000
records that release the same sums are the same to the last byte, and of files of 64 and of 65 records no attacker tells
more than ε allows.
"""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from attacks.guesses import allowed, are_more
from support.small_models import location_model, private_plan

import dpvi
from dpvi.families import FullRank, MeanField
from dpvi.gradients import Aligned, Vanilla
from dpvi.mechanism.rng import root_key, streams
from dpvi.records import sampling
from dpvi.records.sampling import poisson_sampler
from dpvi.release.driver import Directive
from dpvi.run.fitting import make_result
from dpvi.run.preparation import prepare
from dpvi.run.program import chunk, loop, recorder
from dpvi.run.program.chunk import Layout, StepBytes
from dpvi.run.program.loop import Run
from dpvi.run.program.step import Algorithm

DIMENSION = 3
MODEL = location_model(DIMENSION)
EPSILON, DELTA = 0.1, 1e-5


@pytest.fixture
def old_path(monkeypatch) -> None:
    """Chunks as long as memory allows for this number of records, and sums that follow them."""
    make_layout = chunk.make_layout

    def old_layout(num_steps: int, size: StepBytes, num_parameters: int = 1, keep_all: bool = False) -> Layout:
        layout = make_layout(num_steps, size, num_parameters, keep_all)
        most = chunk.longest_chunk(size.drawn + size.row // layout.stride, size.randomness)
        length = chunk._window(num_steps, layout.block_length, most)  # the rule that windows have now
        return layout._replace(chunk_length=length, window_length=length)

    monkeypatch.setattr(loop, "make_layout", old_layout)
    monkeypatch.setattr(sampling, "whole_tiles", lambda size: size)


# How steps are cut


def layout_of(num_records: int, sampling_rate: float = 1.0, num_steps: int = 20_000) -> Layout:
    sampler = poisson_sampler(num_records, sampling_rate)
    plan = private_plan(num_steps, sampling_rate)
    return Run(Algorithm(MODEL, MeanField(), Aligned(), optax.sgd(0.1), plan, sampler)).layout


@pytest.mark.usefixtures("old_path")
def test_sums_once_followed_the_number_of_records():
    assert (layout_of(10_907).window_length, layout_of(10_908).window_length) == (192, 96)


@pytest.mark.parametrize("sampling_rate", [1.0, 0.1])
def test_sums_do_not_follow_the_number_of_records(sampling_rate):
    counts = [1, 64, 65, *range(10_900, 10_915), 10**5, 10**6]
    layouts = [layout_of(count, sampling_rate) for count in counts]
    assert len({layout._replace(chunk_length=0) for layout in layouts}) == 1
    assert len({layout.chunk_length for layout in layouts}) > 2


# The attack, on files of 64 and of 65 records


COUNTS, NUM_STEPS, BLOCK = (64, 65), 9600, 96
ORDERS = (96, 48, 24)  # lengths of chunks that an attacker tries
BYTES_OF_64 = 4 * (64 + 5 * DIMENSION)  # of a step's randomness while it is drawn
SUMS = NUM_STEPS // BLOCK * 2 * DIMENSION  # of squares, in a file


@pytest.fixture
def short_chunks(monkeypatch) -> None:
    """Room for chunks of one block with 64 records and of half a block with 65."""
    monkeypatch.setattr(chunk, "_DRAWN_BYTES", BLOCK * BYTES_OF_64)


def saved(count: int, folder: Path, repeats: int) -> list[Path]:
    """Files of so many fits, each with 256 random bits of the operating system."""
    data = np.random.default_rng(0).normal(size=(COUNTS[1], DIMENSION))[:count]
    plan = dpvi.plan(epsilon=EPSILON, delta=DELTA, sampling_rate=1.0, num_steps=NUM_STEPS, clip_norm=1.0)
    algorithm, placed, *_ = prepare(MODEL, data, plan)
    run, state = Run(algorithm), algorithm.initial(jnp.zeros(DIMENSION))
    files = [folder / f"{count}-{number}.npz" for number in range(repeats)]
    for file in files:
        trace = run(placed.records, streams(root_key(None)), state)[0]
        make_result(algorithm, trace, jax.ShapeDtypeStruct((DIMENSION,), np.float32), None).save(file)
    return files


def in_order(rows: np.ndarray, length: int) -> np.ndarray:
    """Sums over blocks as they were made of chunks of ``length`` rows: by halves in each, then one after the other."""
    with jax.enable_x64(True):
        of_chunks = np.asarray(recorder._added(jnp.asarray(rows.reshape(-1, length, rows.shape[1]))))
    parts = of_chunks.reshape(-1, BLOCK // length, rows.shape[1])
    return functools.reduce(np.add, np.moveaxis(parts, 1, 0))


def matches(file: Path) -> np.ndarray:
    """How many of the saved sums of squares are those of each order, from the saved file alone."""
    with np.load(file) as arrays:
        squares = arrays["iterates"].astype(np.float64) ** 2
        return np.array([np.sum(in_order(squares, length) == arrays["blocks.phi_squared"]) for length in ORDERS])


def patterns(file: Path) -> np.ndarray:
    """Whatever else bits may show: for every array of the file, how many zeros its numbers end with."""
    found = [*matches(file)]
    with np.load(file) as arrays:
        for array in map(arrays.__getitem__, arrays.files):
            if array.dtype.kind == "f":
                digits = array.reshape(-1).view(f"i{array.dtype.itemsize}").astype(np.int64)
                lowest = (digits & -digits)[digits != 0]
                found.append(np.mean(np.log2(np.maximum(lowest, 1).astype(np.float64))))
    return np.array(found)


def described(file: Path) -> tuple:
    """Size, and the names, shapes and types of all arrays."""
    with np.load(file) as arrays:
        kinds = [(name, array.shape, str(array.dtype)) for name, array in arrays.items()]
    return file.stat().st_size, *kinds


@pytest.mark.usefixtures("old_path", "short_chunks")
def test_files_once_told_the_number_of_records(tmp_path):
    for count, order in zip(COUNTS, ORDERS, strict=False):
        for file in saved(count, tmp_path, 5):
            found = dict(zip(ORDERS, matches(file), strict=True))
            assert found.pop(order) == SUMS
            assert max(found.values()) < 0.95 * SUMS  # 500 of 600 was found


@pytest.fixture
def files(short_chunks, tmp_path) -> dict[int, list[Path]]:
    assert len({layout_of(count, num_steps=NUM_STEPS).chunk_length for count in COUNTS}) == 2
    return {count: saved(count, tmp_path, 30) for count in COUNTS}


def test_files_do_not_tell_the_number_of_records(files):
    """All of them match one order, which is public; nor does an attacker find more who learns from half of them."""
    few, many = (np.stack([patterns(file) for file in files[count]]) for count in COUNTS)
    assert np.all(few[:, 0] == SUMS)
    assert np.all(many[:, 0] == SUMS)
    right, trials = learned(few, many)
    assert not are_more(right, trials, allowed(EPSILON, DELTA))
    shown = (
        np.concatenate([few, np.zeros((len(few), 1))], axis=1),
        np.concatenate([many, np.ones((len(many), 1))], axis=1),
    )
    assert are_more(*learned(*shown), allowed(EPSILON, DELTA))  # the attacker would learn what there is to learn
    assert len({described(file) for of_count in files.values() for file in of_count}) == 1


def learned(few: np.ndarray, many: np.ndarray) -> tuple[int, int]:
    """Right guesses, and of how many, on the second half of the files by the best threshold of the first half."""
    half = len(few) // 2
    best = (-1.0, 0, 0.0, 1.0)
    for column in range(few.shape[1]):
        for threshold in np.unique(np.concatenate([few[:half, column], many[:half, column]])):
            share = np.mean(many[:half, column] >= threshold) - np.mean(few[:half, column] >= threshold)
            best = max(best, (abs(share), column, threshold, np.sign(share)))
    _, column, threshold, sign = best
    above = [sign * ((each[half:, column] >= threshold) - 0.5) > 0 for each in (few, many)]
    return int(np.sum(~above[0]) + np.sum(above[1])), 2 * (len(few) - half)


# Records that add nothing: the same sums are released, so the same bits must be


CASES = {
    "moving": {},
    "full rank": {"family": FullRank()},
    "curvature sums": {"estimator": Vanilla()},
    "measuring": {"driver": lambda released: Directive(37, np.ones(DIMENSION) if released.step // 37 % 2 else None)},
}


@pytest.fixture
def shorter_chunks(monkeypatch) -> None:
    """Blocks of the 400 steps here have 4: one chunk with up to 64 records, and four chunks with 1,000."""
    monkeypatch.setattr(chunk, "_DRAWN_BYTES", 4 * BYTES_OF_64)


def chunks_and_file(count: int, folder: Path, monkeypatch, **options) -> tuple[int, bytes]:
    """How long chunks were, and the saved file of a run over 30 records and as many broken ones as there must be."""
    data = np.full((count, DIMENSION), np.nan)
    data[:30] = np.random.default_rng(0).normal(size=(30, DIMENSION))
    lengths, make_chunk = [], loop.make_chunk
    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_chunk", lambda *args: (lengths.append(args[1].chunk_length), make_chunk(*args))[1])
        result = dpvi.fit(MODEL, data, private_plan(400, 1.0, 5.0), seed=3, progress=False, **options)
    result.save(folder / "result.npz")
    return lengths[0], (folder / "result.npz").read_bytes()


@pytest.mark.usefixtures("shorter_chunks")
@pytest.mark.parametrize("case", CASES)
def test_a_file_is_the_same_to_the_last_byte_whatever_the_number_of_records(tmp_path, monkeypatch, case):
    lengths, files = zip(*(chunks_and_file(n, tmp_path, monkeypatch, **CASES[case]) for n in (40, 1000)), strict=True)
    assert lengths[0] != lengths[1]
    assert files[0] == files[1]


@pytest.mark.usefixtures("old_path", "shorter_chunks")
def test_it_was_not(tmp_path, monkeypatch):
    lengths, files = zip(*(chunks_and_file(n, tmp_path, monkeypatch) for n in (40, 1000)), strict=True)
    assert lengths[0] != lengths[1]
    assert files[0] != files[1]
