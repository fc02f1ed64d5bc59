"""Gradient of one batch of a variational auto-encoder, three ways: ``python benchmarks/ghost_clipping.py``.

Without privacy (gradient of the sum), with gradients of single records (``vmap``), and without them (ghost). The
network is 784-400-50 and back, 688,884 parameters; images are random, which costs the same. Prints milliseconds,
ratios, and what the compiled programs need in temporary memory; ``--output`` writes them as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from dpvi.gradients.ghost import clipped_gradient_sum
from dpvi.mechanism.bounded_sum import bounded_sum

PIXELS, HIDDEN, LATENT, CLIP_NORM = 784, 400, 50, 10.0


def parameters(key: jax.Array) -> dict[str, dict[str, jax.Array]]:
    sizes = {
        "encoder": (PIXELS, HIDDEN),
        "location": (HIDDEN, LATENT),
        "scale": (HIDDEN, LATENT),
        "decoder": (LATENT, HIDDEN),
        "pixels": (HIDDEN, PIXELS),
    }
    keys = jax.random.split(key, len(sizes))
    return {
        name: {"weight": jax.random.normal(each, size) / size[0] ** 0.5, "bias": jnp.zeros(size[1])}
        for (name, size), each in zip(sizes.items(), keys, strict=True)
    }


def term(params: dict[str, dict[str, jax.Array]], record: tuple[jax.Array, jax.Array]) -> jax.Array:
    """ELBO of one image with one draw of its latent variables."""

    def dense(name: str, inputs: jax.Array) -> jax.Array:
        return inputs @ params[name]["weight"] + params[name]["bias"]

    image, draw = record
    hidden = jax.nn.softplus(dense("encoder", image))
    location, log_scale = dense("location", hidden), dense("scale", hidden)
    latent = location + jnp.exp(log_scale) * draw
    logits = dense("pixels", jax.nn.softplus(dense("decoder", latent)))
    likelihood = jnp.sum(image * logits - jax.nn.softplus(logits))
    divergence = 0.5 * jnp.sum(jnp.exp(2 * log_scale) + location**2 - 1 - 2 * log_scale)
    return likelihood - divergence


def contestants(unravel: Callable[[jax.Array], Any], microbatch_size: int | None) -> dict[str, Callable]:
    def flat_term(vector: jax.Array, record: Any) -> jax.Array:
        return term(unravel(vector), record)

    def without_privacy(vector: jax.Array, records: Any, included: jax.Array) -> jax.Array:
        def total(vector: jax.Array) -> jax.Array:
            return jnp.sum(jnp.where(included, jax.vmap(flat_term, (None, 0))(vector, records), 0))

        return jax.grad(total)(vector)

    def single_records(vector: jax.Array, records: Any, included: jax.Array) -> jax.Array:
        gradients = jax.vmap(jax.grad(flat_term), (None, 0))(vector, records)
        return bounded_sum(gradients, included, CLIP_NORM).value

    def ghost(vector: jax.Array, records: Any, included: jax.Array) -> jax.Array:
        summed = partial(clipped_gradient_sum, flat_term, clip_norm=CLIP_NORM, microbatch_size=microbatch_size)
        return summed(vector, records, included).value

    return {"without privacy": without_privacy, "vmap": single_records, "ghost": ghost}


def compiled_loop(run: Callable, inner: int, arguments: tuple[Any, ...]) -> Any:
    """``inner`` gradients in one compiled loop, as steps of a fit follow each other, each from where the last led."""

    def loop(vector: jax.Array, *rest: Any) -> jax.Array:
        return jax.lax.fori_loop(0, inner, lambda _, v: v + 1e-9 * run(v, *rest), vector)

    return jax.jit(loop).lower(*arguments).compile()


def measure(
    runs: dict[str, Callable], repeats: int, inner: int, arguments: tuple[Any, ...]
) -> dict[str, dict[str, float]]:
    """Milliseconds of a gradient, ratio to the first contestant and temporary memory; contestants take turns."""
    programs = {name: compiled_loop(run, inner, arguments) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        jax.block_until_ready(program(*arguments))
    for _ in range(repeats):
        for name, program in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            times[name].append(1e3 * (time.perf_counter() - start) / inner)
    base = next(iter(times.values()))
    return {
        name: {
            "milliseconds": statistics.median(taken),
            "ratio": statistics.median(one / other for one, other in zip(taken, base, strict=True)),
            "temporary_megabytes": programs[name].memory_analysis().temp_size_in_bytes / 1e6,
        }
        for name, taken in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--inner", type=int, default=5, help="gradients per timed call")
    parser.add_argument("--microbatch-size", type=int, default=None)
    parser.add_argument("--skip", nargs="*", default=[], help="contestants to leave out, e.g. vmap at large batches")
    parser.add_argument("--precision", default=None, help="of the model's own matrix products, e.g. highest")
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    if options.precision is not None:
        jax.config.update("jax_default_matmul_precision", options.precision)
    keys = jax.random.split(jax.random.key(0), 3)
    vector, unravel = ravel_pytree(parameters(keys[0]))
    records = (
        jax.random.bernoulli(keys[1], 0.2, (options.batch, PIXELS)).astype(vector.dtype),
        jax.random.normal(keys[2], (options.batch, LATENT)),
    )
    included = jnp.arange(options.batch) < options.batch - 1
    runs = contestants(unravel, options.microbatch_size)
    runs = {name: run for name, run in runs.items() if name not in options.skip}
    results = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "parameters": vector.size,
        "batch": options.batch,
        "microbatch_size": options.microbatch_size,
        "precision": options.precision or "default",
        "contestants": measure(runs, options.repeats, options.inner, (vector, records, included)),
    }
    for name, result in results["contestants"].items():
        print(
            f"{name:>16}: {result['milliseconds']:9.3f} ms  {result['ratio']:6.2f} times without privacy  "
            f"{result['temporary_megabytes']:9.1f} MB temporary"
        )
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
