"""How far float32 rounding lets one record move a clipped sum beyond the clip norm: ``python benchmarks/rounding.py``.

The first of many rows leaves, so that all others move up a slot. Rows lie in one orthant, have two columns and are all
clipped, which is where partial sums grow fastest. Prints the largest excess over the clip norm, relative to it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.mechanism.bounded_sum import bounded_sum

TRIALS = {400: 20, 2048: 20, 10**5: 3, 10**6: 3}


def main() -> None:
    generator = np.random.default_rng(0)
    added = jax.jit(lambda rows, included: bounded_sum(rows, included, 1.0))
    for count, trials in TRIALS.items():
        excess = 0.0
        for _ in range(trials):
            rows = np.abs(generator.normal(size=(count, 2)) ** 3).astype(np.float32)
            rows *= 2 / np.linalg.norm(rows, axis=1, keepdims=True)
            shifted = np.concatenate([rows[1:], rows[-1:]])
            totals = (
                added(jnp.asarray(rows), jnp.ones(count, bool)),
                added(jnp.asarray(shifted), jnp.arange(count) < count - 1),
            )
            with_first, without = (np.float64(total.high) + np.float64(total.low) for total in totals)
            excess = max(excess, float(np.linalg.norm(with_first - without)) - 1)
        print(f"{count:>9,} rows: {excess:.1e}")


if __name__ == "__main__":
    main()
