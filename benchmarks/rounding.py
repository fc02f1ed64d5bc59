"""How far float32 rounding lets one record move a clipped sum beyond the clip norm: ``python benchmarks/rounding.py``.

The first of many rows leaves, so that all others move up a slot. Rows lie in one orthant, have two columns and are all
clipped, which is where partial sums grow fastest; those of every other trial point in nearly one direction. Writes the
largest excess over the clip norm in all trials, relative to it, for sums in one pass, in parts (``microbatch_size``)
and of gradients that are clipped without being formed; and that of the count of unclipped records over ½, of records
all of which count for a fraction. Excess of plain sums is random: more trials find a little more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness.output import RESULTS, table, write

from dpvi.gradients.ghost import clipped_gradient_sum, in_microbatches
from dpvi.mechanism.bounded_sum import TwoFold, bounded_sum, bounded_sum_and_count

TRIALS = {512: 400, 2048: 400, 10**5: 100, 10**6: 20}
PART = 256
Adder = Callable[[jax.Array, jax.Array], TwoFold]


def one_pass(rows: jax.Array, included: jax.Array) -> TwoFold:
    return bounded_sum(rows, included, 1.0)


def in_parts(rows: jax.Array, included: jax.Array) -> TwoFold:
    def part(rows: jax.Array, present: jax.Array) -> TwoFold:
        return bounded_sum(rows, present, 1.0)

    return in_microbatches(part, rows, included, PART)


def ghost(rows: jax.Array, included: jax.Array) -> TwoFold:
    return clipped_gradient_sum(lambda weights, row: jnp.sum(row @ weights), jnp.ones((2, 1)), rows, included, 1.0)


def count(rows: jax.Array, included: jax.Array) -> TwoFold:
    return bounded_sum_and_count(rows, included, 1.0).centred_count


def clipped_rows(generator: np.random.Generator, number: int, trial: int) -> np.ndarray:
    if trial % 2:
        return np.abs(generator.normal(size=(number, 2))).astype(np.float32) + 2
    rows = np.abs(generator.normal(size=(number, 2)) ** 3).astype(np.float32)
    return rows * (2 / np.linalg.norm(rows, axis=1, keepdims=True))


def nearly_clipped_rows(generator: np.random.Generator, number: int, trial: int) -> np.ndarray:
    del trial
    rows = generator.uniform(0.9, 1, size=(number, 1)).astype(np.float32)
    rows[0] = 0.5  # the one that leaves counts for ½
    return rows


def change(add: Adder, rows: np.ndarray) -> float:
    """By how much the sum moves when the first row leaves."""
    number = len(rows)
    shifted = np.concatenate([rows[1:], rows[-1:]])
    totals = (
        add(jnp.asarray(rows), jnp.ones(number, bool)),
        add(jnp.asarray(shifted), jnp.arange(number) < number - 1),
    )
    with_first, without = (np.float64(total.high) + np.float64(total.low) for total in totals)
    return float(np.linalg.norm(with_first - without))


def measure() -> list[dict[str, float]]:
    """The largest excess by number of rows and way of adding."""
    adders = {"one pass": one_pass, f"parts of {PART}": in_parts, "not formed": ghost, "count": count}
    found = []
    for number, trials in TRIALS.items():
        row: dict[str, float] = {"rows": number, "trials": trials}
        for name, add in adders.items():
            generator = np.random.default_rng(0)
            make, bound = (nearly_clipped_rows, 0.5) if name == "count" else (clipped_rows, 1.0)
            compiled = jax.jit(add)
            row[name] = max(change(compiled, make(generator, number, trial)) for trial in range(trials)) / bound - 1
        found.append(row)
    return found


def markdown(content: dict[str, Any]) -> str:
    rows = content["excess"]
    cells = [
        [f"{value:,}" if name in ("rows", "trials") else f"{value:.1e}" for name, value in row.items()] for row in rows
    ]
    about = (
        f"Made by `{content['command']}`, jax {content['jax']}. Largest excess of what one record moves over the clip "
        "norm (of the count: over ½), relative to it; negative where none was found. What is added how: the docstring."
    )
    return "\n\n".join(["# Rounding of clipped sums", about, table(list(rows[0]), cells)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "rounding.json")
    options = parser.parse_args(arguments)
    content = {"command": "python benchmarks/rounding.py", "jax": jax.__version__, "excess": measure()}
    print(write(content, options.output, markdown))


if __name__ == "__main__":
    main()
