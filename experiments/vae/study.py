"""The parts of the study, each row added to the content as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from dpvi.run.program import chunk, lanes
from experiments.vae.batches import step_memory, step_seconds
from experiments.vae.contestants import Reading, Trained, make_plan, not_private, private
from experiments.vae.problem import Problem, load, loss_on_test_images, simulated
from experiments.vae.samplers import measure_samplers
from experiments.vae.settings import Settings

Keep = Callable[[dict[str, Any]], None]
READINGS = (Reading(closed_form=False), Reading(grey=True, closed_form=False), Reading(grey=True))  # beside the default


def run_training(
    settings: Settings, datasets: Sequence[str], precisions: Sequence[str], content: dict[str, Any], keep: Keep
) -> None:
    """Table 2: every data set at every precision, private and not, skipping rows that are there."""
    done = {(row["dataset"], row["precision"]) for row in content["training"]}
    plan = make_plan(settings)
    for dataset in datasets:
        wanted = [precision for precision in precisions if (dataset, precision) not in done]
        problem = load(dataset, settings) if wanted else None
        for precision in wanted:
            assert problem is not None
            with matmul_precision(precision):
                row: dict[str, Any] = {"dataset": dataset, "precision": precision}
                row["private"] = _trained(private(problem, settings, plan), problem, settings)
                row["not private"] = _trained(not_private(problem, settings), problem, settings)
            content["training"].append(row)
            keep(content)


def _trained(train: Callable[[int], Trained], problem: Problem, settings: Settings) -> dict[str, Any]:
    """Seconds per epoch, compiling apart, and the losses of all trainings."""
    first, *others = [train(seed) for seed in range(settings.repeats + 1)]
    epochs = [each.seconds / settings.num_epochs for each in others]
    return {
        "seconds_per_epoch": epochs,
        "seconds_to_compile": first.seconds - float(np.mean([each.seconds for each in others])),
    } | _losses([first, *others], problem, settings)


def _losses(trainings: Sequence[Trained], problem: Problem, settings: Settings, grey: bool = False) -> dict[str, Any]:
    """Of the last iterates, and of the averaged ones where there are any."""
    averaged = [each.averaged for each in trainings if each.averaged is not None]
    found = {"losses": [each.parameters for each in trainings], "averaged_losses": averaged}
    return {
        name: [loss_on_test_images(each, problem, settings, grey) for each in parameters]
        for name, parameters in found.items()
    }


def run_readings(settings: Settings, datasets: Sequence[str], content: dict[str, Any], keep: Keep) -> None:
    """Losses under other readings of the paper: divergences at a draw, and images trained on and judged in grey."""
    done = {(row["dataset"], row["grey"], row["closed_form"]) for row in content["readings"]}
    plan = make_plan(settings)
    for dataset in datasets:
        for reading in READINGS:
            if (dataset, *reading) in done:
                continue
            problem = load(dataset, settings)
            train = private(problem, settings, plan, reading)
            trainings = [train(seed) for seed in range(settings.repeats)]
            row = {"dataset": dataset} | reading._asdict()
            content["readings"].append(row | _losses(trainings, problem, settings, reading.grey))
            keep(content)


def run_timings(settings: Settings, parts: Sequence[str], content: dict[str, Any], keep: Keep) -> None:
    """Samplers, batch sizes and memory, on images of noise: they cost the same."""
    problem = simulated(settings)
    if "samplers" in parts and not content["samplers"]:
        content["samplers"] = measure_samplers(settings)
        keep(content)
    if "memory" in parts and not content["memory"]:
        content["memory"] = step_memory(problem, settings)
        keep(content)
    done = {row["batch_size"] for row in content["batches"]}
    for size in settings.batch_sizes if "batches" in parts else ():
        if size not in done:
            content["batches"].append(step_seconds(problem, settings, size))
            keep(content)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Precision of the network's own matrix products; norms and clipped sums have the highest whatever this says."""
    if precision == "default":
        yield
        return
    with jax.default_matmul_precision(precision):
        yield


@contextmanager
def chunk_megabytes(size: int | None) -> Iterator[None]:
    """Memory that the draws and rows of a chunk of steps may take, where the library's bound is to be varied."""
    name = "_CHUNK_BYTES" if lanes.on_host() else "_ACCELERATOR_CHUNK_BYTES"
    usual = getattr(chunk, name)
    setattr(chunk, name, usual if size is None else size * 2**20)
    try:
        yield
    finally:
        setattr(chunk, name, usual)
