"""NA-DPVI's exact engine against NUTS: ``python benchmarks/na_dpvi_engines.py [--quick] [--output FILE.json]``.

Both make 4,000 draws of φ* from the same sums, the paper's number; NUTS after the paper's 1,000 steps of warm-up. Its
draws are correlated and those of the exact engine are not, so times are also compared at equal accuracy: NUTS's is
multiplied by how many more draws it would need until its effective sample size (the worst over parameters, of φ* and of
its square) is that of 4,000 independent draws. (Warm-up and compilation are multiplied with the rest, though they need
not grow; the ratio at 4,000 draws each is the bound from below.) The exact engine's own error is that of its grid: mean
and standard deviation of φ* are compared with those on a grid of four times as many panels.

Cold is the first call of a process, imports done but nothing compiled; warm is every later one (NUTS compiles its
potential for every model, so its calls are all but alike). Engines alternate, and ratios are taken within a round; a
large model has one round, which on two cores takes NUTS minutes. Writes the JSON named by ``--output`` and the Markdown
table made from it beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from harness.output import RESULTS, machine, table, write
from harness.statistics import ratio, summary
from numpyro.diagnostics import effective_sample_size

from dpvi.posterior.na_dpvi import GradientModel, TraceStatistics, exact, gradient_model, nuts_draws, quadrature
from dpvi.posterior.na_dpvi.exact import exact_draws

NUM_DRAWS, NUM_WARMUP = 4000, 1000
# variational parameters (Beta-Bernoulli, the 10-D regression and Adult in the paper): rounds
ROUNDS = {2: 3, 24: 2, 114: 1}
SAMPLING_RATE, NUM_STEPS = 0.1, 8000
SPEED_TARGET, SECONDS_TARGET = 100.0, 1.0


def simulated_model(size: int, subsampling_variance: bool) -> GradientModel:
    """Sums as a settled run of gradient descent leaves them: curvatures known to between 3 and 30 standard errors."""
    rng = np.random.default_rng(size)
    noise, curvature = rng.uniform(2, 20, size), rng.uniform(20, 500, size)
    line = SAMPLING_RATE * curvature
    spread = (noise * rng.uniform(3, 30, size) / line) ** 2
    scatter = np.sqrt(noise**2 + 0.5**2)
    statistics = TraceStatistics(
        float(NUM_STEPS),
        rng.normal(size=size),
        spread,
        0.1 * scatter / np.sqrt(NUM_STEPS) * rng.normal(size=size),
        line + scatter / np.sqrt(spread) * rng.normal(size=size),
        scatter**2 * rng.chisquare(NUM_STEPS - 2, size),
    )
    return gradient_model(statistics, SAMPLING_RATE, noise, 1.0, subsampling_variance)


def run_exact(model: GradientModel, seed: int) -> np.ndarray:
    return exact_draws(model, NUM_DRAWS, np.random.default_rng(seed))


def run_nuts(model: GradientModel, seed: int) -> np.ndarray:
    return nuts_draws(model, NUM_DRAWS, jax.random.key(seed), NUM_WARMUP)


ENGINES: dict[str, Callable[[GradientModel, int], np.ndarray]] = {"exact": run_exact, "nuts": run_nuts}


def worst_effective_size(draws: np.ndarray) -> float:
    """The smallest effective sample size over parameters, of φ* and of its square about the mean."""
    values = np.concatenate([draws, (draws - draws.mean(axis=0)) ** 2], axis=1)
    return float(np.min(effective_sample_size(values[None])))


def residual_error(model: GradientModel) -> dict[str, float]:
    """Largest error of the exact engine's mean and standard deviation, in standard deviations, against a finer grid."""
    coarse = quadrature(model)
    names = ("_FIXED_PANELS", "_MOVING_EDGES")
    kept = {name: getattr(exact, name) for name in names}
    try:
        for name in names:
            setattr(exact, name, tuple(4 * count for count in kept[name]))
        parts = [quadrature(model.take(slice(i, i + 1))) for i in range(len(model.prior_scale))]  # fine grids are large
    finally:
        for name in names:
            setattr(exact, name, kept[name])
    mean, deviation = (np.concatenate([getattr(p, f) for p in parts]) for f in ("mean", "standard_deviation"))
    return {
        "mean": float(np.max(np.abs(coarse.mean - mean) / deviation)),
        "standard_deviation": float(np.max(np.abs(coarse.standard_deviation / deviation - 1))),
    }


def timed(engine: str, model: GradientModel, seed: int) -> tuple[float, np.ndarray]:
    started = time.perf_counter()
    draws = ENGINES[engine](model, seed)
    return time.perf_counter() - started, draws


def cold_seconds(engine: str, size: int, subsampling_variance: bool) -> float:
    """The first call in a process of its own."""
    arguments = [sys.executable, __file__, "--cold", engine, str(size), str(int(subsampling_variance))]
    return float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.split()[-1])


def measure(size: int, subsampling_variance: bool, rounds: int) -> dict[str, Any]:
    """One row of the table."""
    model = simulated_model(size, subsampling_variance)
    cold = {engine: cold_seconds(engine, size, subsampling_variance) for engine in ENGINES}
    timed("exact", model, 0)
    seconds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    at_equal_accuracy, sizes = [], []
    for index in range(1, rounds + 1):
        draws = {}
        for engine in ENGINES:
            elapsed, draws[engine] = timed(engine, model, index)
            seconds[engine].append(elapsed)
        sizes.append(worst_effective_size(draws["nuts"]))
        at_equal_accuracy.append(seconds["nuts"][-1] * NUM_DRAWS / sizes[-1])
    return {
        "num_parameters": size,
        "subsampling_variance": subsampling_variance,
        "rounds": rounds,
        "cold_seconds": {engine: round(value, 3) for engine, value in cold.items()},
        "warm_seconds": {engine: summary(values, digits=5) for engine, values in seconds.items()},
        "nuts_effective_sample_size": summary(sizes, digits=0),
        "exact_residual_error": residual_error(model),
        "ratios": {
            "nuts / exact, 4,000 draws each": ratio(seconds["nuts"], seconds["exact"]),
            "nuts / exact, equal accuracy": ratio(at_equal_accuracy, seconds["exact"]),
            "nuts / exact, cold": round(cold["nuts"] / cold["exact"], 1),
        },
    }


def markdown(content: dict[str, Any]) -> str:
    """The table, from the JSON alone."""
    place, rows = content["machine"], content["rows"]
    header = (
        *("parameters", "ψ", "rounds", "exact, ms", "nuts, s", "nuts ESS", "ratio", "ratio, equal accuracy"),
        *("cold: exact, s", "nuts, s", "error of exact: mean, sd"),
    )
    parts = [
        "# NA-DPVI: exact against NUTS",
        f"Made by `{content['command']}`; {place['cores']} cores ({place['architecture']}), medians over "
        f"interleaved rounds. {NUM_DRAWS:,} draws each, NUTS after {NUM_WARMUP:,} steps of warm-up; "
        f"at equal accuracy NUTS's time is scaled until its worst effective sample size is {NUM_DRAWS:,} (its warm-up "
        "too, so that the truth lies between the two ratios).",
        table(header, map(_cells, rows)),
        table(("goal", "measured", "target", "met"), _goals(rows)),
        "Errors of exact are against a grid of four times as many panels, in standard deviations of φ*; the Monte "
        f"Carlo error of the mean of {NUM_DRAWS:,} draws is {NUM_DRAWS**-0.5:.0e}.",
    ]
    return "\n\n".join(parts) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    warm, cold, error, ratios = (row[k] for k in ("warm_seconds", "cold_seconds", "exact_residual_error", "ratios"))
    return (
        str(row["num_parameters"]),
        "yes" if row["subsampling_variance"] else "no",
        str(row["rounds"]),
        f"{1e3 * warm['exact']['median']:.1f}",
        f"{warm['nuts']['median']:.2f}",
        f"{row['nuts_effective_sample_size']['median']:.0f}",
        f"{ratios['nuts / exact, 4,000 draws each']['median']:.0f}",
        f"{ratios['nuts / exact, equal accuracy']['median']:.0f}",
        f"{cold['exact']:.2f}",
        f"{cold['nuts']:.1f}",
        f"{error['mean']:.0e}, {error['standard_deviation']:.0e}",
    )


def _goals(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    smallest = min(row["ratios"]["nuts / exact, equal accuracy"]["median"] for row in rows)
    slowest = max(row["warm_seconds"]["exact"]["median"] for row in rows)
    fast, short = ("yes" if met else "no" for met in (smallest >= SPEED_TARGET, slowest < SECONDS_TARGET))
    return [
        ("nuts / exact at equal accuracy, smallest", f"{smallest:.0f}", f"≥ {SPEED_TARGET:g}", fast),
        ("exact, slowest, s", f"{slowest:.3f}", f"< {SECONDS_TARGET:g}", short),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one round, without the largest model")
    parser.add_argument("--output", type=Path, default=RESULTS / "na_dpvi_engines.json")
    parser.add_argument("--cold", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.cold:
        engine, size, subsampling_variance = options.cold
        print(timed(engine, simulated_model(int(size), bool(int(subsampling_variance))), 0)[0])
        return
    rows = []
    for size, rounds in {2: 1, 24: 1}.items() if options.quick else ROUNDS.items():
        for subsampling_variance in (False, True):
            rows.append(measure(size, subsampling_variance, rounds))
            print(json.dumps(rows[-1]["ratios"]), file=sys.stderr, flush=True)
    content = {
        "command": "python benchmarks/na_dpvi_engines.py" + (" --quick" if options.quick else ""),
        "machine": machine(),
        "num_draws": NUM_DRAWS,
        "num_warmup": NUM_WARMUP,
        "rows": rows,
    }
    print(write(content, options.output, markdown))


if __name__ == "__main__":
    main()
