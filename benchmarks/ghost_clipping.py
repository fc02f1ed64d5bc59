"""Gradient of one batch of a variational auto-encoder, several ways: ``python benchmarks/ghost_clipping.py``.

Without privacy (gradient of the sum), with gradients of single records (``vmap``, at small batches only), and without
them (ghost): clipped to one norm, in parts, layer by layer, and to a norm that is known only when the program runs. The
network is 784-400-50 and back, 688,884 parameters; images are random, which costs the same. Milliseconds, ratios, and
what the compiled programs need in temporary memory go to ``--output`` as JSON, and as a table beside it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from harness.output import RESULTS, table, write
from jax.flatten_util import ravel_pytree

from dpvi.gradients.ghost import clipped_gradient_sum
from dpvi.gradients.ghost.whole_rows import BITS
from dpvi.mechanism.bounded_sum import bounded_sum
from dpvi.mechanism.gaussian import FORMED_BITS
from dpvi.mechanism.layers import Layers

PIXELS, HIDDEN, LATENT, CLIP_NORM = 784, 400, 50, 10.0
MOST_SINGLE_RECORDS, MICROBATCH = 256, 256


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


def contestants(vector: jax.Array, unravel: Callable[[jax.Array], Any], batch: int) -> dict[str, Callable]:
    """What is compared at this batch size; gradients of single records only where they fit in memory."""

    def flat_term(vector: jax.Array, record: Any) -> jax.Array:
        return term(unravel(vector), record)

    def without_privacy(vector: jax.Array, records: Any, included: jax.Array) -> jax.Array:
        def total(vector: jax.Array) -> jax.Array:
            return jnp.sum(jnp.where(included, jax.vmap(flat_term, (None, 0))(vector, records), 0))

        return jax.grad(total)(vector)

    def single_records(vector: jax.Array, records: Any, included: jax.Array) -> jax.Array:
        gradients = jax.vmap(jax.grad(flat_term), (None, 0))(vector, records)
        return bounded_sum(gradients, included, CLIP_NORM).total.astype(vector.dtype) * 2.0**-FORMED_BITS

    def ghost(vector: jax.Array, records: Any, included: jax.Array, **options: Any) -> jax.Array:
        clipped = clipped_gradient_sum(flat_term, vector, records, included, CLIP_NORM, **options)
        return clipped.total.astype(vector.dtype) * 2.0**-BITS

    def adaptive(vector: jax.Array, records: Any, included: jax.Array) -> jax.Array:
        clip_norm = CLIP_NORM + 0 * vector[0]  # a number that is known only when the program runs
        clipped = clipped_gradient_sum(flat_term, vector, records, included, clip_norm)
        return (clipped.total + 0 * clipped.centred_count).astype(vector.dtype) * 2.0**-BITS

    sizes = tuple(leaf.size for leaf in jax.tree.leaves(unravel(vector)))
    layers = Layers(sizes, (CLIP_NORM / len(sizes) ** 0.5,) * len(sizes))
    runs = {"without privacy": without_privacy, "single records (vmap)": single_records, "ghost": ghost}
    if batch > MOST_SINGLE_RECORDS:
        del runs["single records (vmap)"]
        runs[f"ghost, parts of {MICROBATCH}"] = partial(ghost, microbatch_size=MICROBATCH)
    return runs | {f"ghost, {len(sizes)} layers": partial(ghost, layers=layers), "ghost, adaptive": adaptive}


def compiled_loop(run: Callable, inner: int, arguments: tuple[Any, ...]) -> Any:
    """``inner`` gradients in one compiled loop, as steps of a fit follow each other, each from where the last led."""

    def loop(vector: jax.Array, *rest: Any) -> jax.Array:
        return jax.lax.fori_loop(0, inner, lambda _, v: v + 1e-9 * run(v, *rest), vector)

    return jax.jit(loop).lower(*arguments).compile()


def measure(
    runs: dict[str, Callable], repeats: int, inner: int, arguments: tuple[Any, ...]
) -> dict[str, dict[str, Any]]:
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
    ratios = {name: [one / other for one, other in zip(each, base, strict=True)] for name, each in times.items()}
    return {
        name: {
            "milliseconds": statistics.median(taken),
            "ratio": statistics.median(ratios[name]),
            "ratio_range": [min(ratios[name]), max(ratios[name])],
            "temporary_megabytes": programs[name].memory_analysis().temp_size_in_bytes / 1e6,
        }
        for name, taken in times.items()
    }


def markdown(content: dict[str, Any]) -> str:
    lines = [
        "# Clipping without gradients of single records",
        "",
        f"Made by `{content['command']}`; {content['device']}, {content['cores']} cores, jax {content['jax']}, "
        f"precision of the model's products: {content['precision']}. One gradient of a network of "
        f"{content['parameters']:,} parameters; medians over {content['repeats']} rounds in which contestants "
        "take turns, ratios within a round.",
        "",
    ]
    header = (
        "batch",
        "contestant",
        "milliseconds",
        "times without privacy (lowest to highest)",
        "temporary memory, MB",
    )
    rows = []
    for batch in content["batches"]:
        for name, each in batch["contestants"].items():
            spread = f"{each['ratio']:.2f} ({each['ratio_range'][0]:.2f} to {each['ratio_range'][1]:.2f})"
            memory = f"{each['temporary_megabytes']:.0f}"
            rows.append((str(batch["batch"]), name, f"{each['milliseconds']:.1f}", spread, memory))
    return "\n".join([*lines, table(header, rows)]) + "\n"


def arguments_of(vector: jax.Array, batch: int) -> tuple[Any, ...]:
    keys = jax.random.split(jax.random.key(1), 2)
    records = (
        jax.random.bernoulli(keys[0], 0.2, (batch, PIXELS)).astype(vector.dtype),
        jax.random.normal(keys[1], (batch, LATENT)),
    )
    return vector, records, jnp.arange(batch) < batch - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 2048])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--inner", type=int, default=5, help="gradients per timed call")
    parser.add_argument("--precision", default=None, help="of the model's own matrix products, e.g. highest")
    parser.add_argument("--output", type=Path, default=RESULTS / "ghost_clipping.json")
    options = parser.parse_args()
    if options.precision is not None:
        jax.config.update("jax_default_matmul_precision", options.precision)
    vector, unravel = ravel_pytree(parameters(jax.random.key(0)))
    measured = [
        {
            "batch": batch,
            "contestants": measure(
                contestants(vector, unravel, batch), options.repeats, options.inner, arguments_of(vector, batch)
            ),
        }
        for batch in options.batches
    ]
    content = {
        "command": shlex.join(["python", "benchmarks/ghost_clipping.py", *sys.argv[1:]]),
        "device": jax.devices()[0].device_kind,
        "cores": os.cpu_count(),
        "jax": jax.__version__,
        "parameters": vector.size,
        "repeats": options.repeats,
        "inner": options.inner,
        "precision": options.precision or "default",
        "batches": measured,
    }
    print(write(content, options.output, markdown))


if __name__ == "__main__":
    main()
