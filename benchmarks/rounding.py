"""Whether rounding lets one record move a clipped sum beyond the clip norm: ``python benchmarks/rounding.py``.

The first of many rows leaves, so that all others move up a slot. Rows lie in one orthant, have two columns and are all
clipped, which is where partial sums grow fastest; those of every other trial point in nearly one direction. Writes the
largest excess over the clip norm in all trials, relative to it, for sums in one pass, in parts (``microbatch_size``)
and of gradients that are clipped without being formed; and that of the count of unclipped records over ½, of records
all of which count for a fraction. Sums are whole numbers of a public unit, so excess is found without rounding.
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
from dpvi.gradients.ghost.whole_rows import BITS
from dpvi.mechanism.bounded_sum import Clipped, bounded_sum
from dpvi.mechanism.gaussian import COUNT_BITS, FORMED_BITS

TRIALS = {512: 400, 2048: 400, 64 * 1562: 100, 10**6: 20}  # whole tiles of slots, as a run has them
PART = 256
Adder = Callable[[jax.Array, jax.Array], jax.Array]  # gives whole numbers


def one_pass(rows: jax.Array, included: jax.Array) -> jax.Array:
    return bounded_sum(rows, included, 1.0).total


def in_parts(rows: jax.Array, included: jax.Array) -> jax.Array:
    def part(rows: jax.Array, present: jax.Array) -> Clipped:
        return bounded_sum(rows, present, 1.0)

    return in_microbatches(part, rows, included, PART).total


def ghost(rows: jax.Array, included: jax.Array) -> jax.Array:
    def term(weights: jax.Array, row: jax.Array) -> jax.Array:
        return jnp.sum(row @ weights)

    return clipped_gradient_sum(term, jnp.ones((2, 1)), rows, included, 1.0).total


def count(rows: jax.Array, included: jax.Array) -> jax.Array:
    return bounded_sum(rows, included, 1.0).centred_count


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


def square_of_change(add: Adder, rows: np.ndarray) -> int:
    """By how many units the sum moves when the first row leaves, squared."""
    number = len(rows)
    shifted = np.concatenate([rows[1:], rows[-1:]])
    totals = (
        add(jnp.asarray(rows), jnp.ones(number, bool)),
        add(jnp.asarray(shifted), jnp.arange(number) < number - 1),
    )
    moved = np.asarray(totals[0]) - np.asarray(totals[1])
    return sum(int(entry) ** 2 for entry in moved.reshape(-1))


def measure() -> list[dict[str, float]]:
    """The largest excess by number of rows and way of adding."""
    # with what one record may add, in units: a clip norm of 1 is half of the power of two above it
    adders = {
        "one pass": (one_pass, clipped_rows, 2 ** (FORMED_BITS - 1)),
        f"parts of {PART}": (in_parts, clipped_rows, 2 ** (FORMED_BITS - 1)),
        "not formed": (ghost, clipped_rows, 2 ** (BITS - 1)),
        "count": (count, nearly_clipped_rows, 2 ** (COUNT_BITS - 1)),
    }
    found = []
    for number, trials in TRIALS.items():
        row: dict[str, float] = {"rows": number, "trials": trials}
        for name, (add, make, bound) in adders.items():
            generator = np.random.default_rng(0)
            compiled = jax.jit(add)
            largest = max(square_of_change(compiled, make(generator, number, trial)) for trial in range(trials))
            row[name] = (largest - bound**2) / (2 * bound**2)  # of the norm, to first order, with the right sign
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
