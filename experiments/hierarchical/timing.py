"""How long one run takes: ``python -m experiments.hierarchical.timing [--steps 100000]``.

One private run at N = 500 and ε = 2, compiled first and then timed: wall-clock and processor seconds of all its steps,
and of their parts, the draws, the steps themselves and the recording of the trace.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from dpvi.mechanism.rng import streams
from dpvi.privacy import PrivacyWarning
from dpvi.run.fitting import start
from dpvi.run.preparation import prepare
from dpvi.run.program.chunk import make_chunk
from dpvi.run.program.draws import make_draws
from dpvi.run.program.loop import Run
from dpvi.run.program.step import noise_of
from experiments.common.missing_cells import ignoring
from experiments.hierarchical.problem import guide, make_problem, model
from experiments.hierarchical.settings import MAIN_SIZE, Settings
from experiments.hierarchical.study import Cell, make_plan


def measure(num_steps: int, repeats: int = 3) -> dict[str, float]:
    """Seconds of a whole run, best of ``repeats``, and milliseconds per step of its parts."""
    settings = Settings()
    problem = make_problem(MAIN_SIZE, settings.data_seed)
    plan = make_plan(Cell(MAIN_SIZE, 2.0, num_steps), settings)
    bound_model, bound_guide = (partial(part, characteristics=problem.characteristics) for part in (model, guide))
    with ignoring(PrivacyWarning):  # δ = 1/N, as published
        optimizer = optax.adam(settings.learning_rate)
        ready = prepare(bound_model, tuple(problem.train), plan, guide=bound_guide, optimizer=optimizer, seed=0)
    algorithm, placed, key, *_ = ready
    run, run_streams = Run(algorithm), streams(key)
    state = algorithm.initial(start(algorithm, None))
    whole = [_taken(lambda: run(placed.records, run_streams, state)) for _ in range(1 + repeats)][1:]
    length, sizes = run.layout.chunk_length, run.sizes
    draw = jax.jit(make_draws(algorithm.sampler, sizes.noise, (1, sizes.base), run.dtype))
    chunk = jax.jit(make_chunk(algorithm, run.layout, careful=False))

    def draws() -> Any:
        with jax.enable_x64(True):
            return draw(run_streams, np.arange(length, dtype=np.uint32))[0]

    drawn = draws()
    steps = partial(chunk, state, placed.records, run_streams, drawn, noise_of(algorithm), 0, None, 0, length)
    parts = {"draws": draws, "steps": lambda: steps().state}
    best = {name: min(_taken(part)[1] for _ in range(1 + 5 * repeats)) for name, part in parts.items()}
    return {
        "seconds": min(wall for wall, _ in whole),
        "processor seconds": min(processor for _, processor in whole),
        **{f"{name}, processor milliseconds per step": 1e3 * each / length for name, each in best.items()},
    }


def _taken(program: Callable[[], Any]) -> tuple[float, float]:
    started, used = time.perf_counter(), time.process_time()
    jax.block_until_ready(program())
    return time.perf_counter() - started, time.process_time() - used


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    given = parser.parse_args(arguments)
    print(f"{given.steps:,} steps on {jax.devices()[0].device_kind}:")
    for name, value in measure(given.steps).items():
        print(f"  {name}: {value:.4g}")


if __name__ == "__main__":
    main()
