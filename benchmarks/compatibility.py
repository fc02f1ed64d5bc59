"""Models after tutorials, put through ``check`` and ``fit`` unchanged: ``python benchmarks/compatibility.py``.

Every model of ``tutorials/`` gets one line: whether its records are independent, so that it should run, and what
becomes of it; with ``--fits`` those that run are fitted for a few steps, too. For some of them the posterior of a long
run at a large ε is compared with that of NUTS: the largest distance of two means of a parameter, in standard deviations
of NUTS. Results go to ``--output`` as JSON, and as a table beside it.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from harness.output import RESULTS, table, write
from numpyro.infer import MCMC, NUTS
from tutorials import ENTRIES, Entry
from tutorials.entry import normal

import dpvi

LIMIT = 0.2  # standard deviations
SEED = 2**200
COMPARED = ("linear", "logistic", "poisson", "changing_scale", "ordered", "varying_intercepts", "partly_pooled")
COMPARED += ("doses", "zero_inflated", "pumps", "random_effects", "partly_pooled_logits", "outliers")


def outliers(x: Any, y: Any) -> None:
    """The entry of this name with its sum over two values written by hand, for NUTS."""
    share, w = numpyro.sample("share", dist.Beta(1.0, 10.0)), normal("w", 1.0, (3,))
    kinds = dist.Categorical(jnp.stack([1 - share, share]))
    parts = dist.Normal((x @ w)[:, None], jnp.array([0.7, 5.0]))
    numpyro.sample("y", dist.MixtureSameFamily(kinds, parts), obs=y)


WITHOUT_DISCRETE: dict[str, Callable] = {"outliers": outliers}


@functools.cache
def short_plan() -> dpvi.Plan:
    """A few steps under a usual ε."""
    return dpvi.plan(epsilon=2.0, delta=1e-5, sampling_rate=0.25, num_steps=20, clip_norm=5.0)


@functools.cache
def long_plan() -> dpvi.Plan:
    """Many steps under an ε that adds hardly any noise."""
    return dpvi.plan(noise_multiplier=0.1, delta=1e-5, sampling_rate=1.0, num_steps=2000, clip_norm=100.0)


def guide_of(entry: Entry) -> Any:
    return dpvi.AutoAmortised(entry.model, hidden=(8,)) if entry.guided else None


def fitted(entry: Entry, plan: dpvi.Plan, **options: Any) -> dpvi.Result:
    guide, static = guide_of(entry), entry.static
    options = {} if guide is not None else options
    return dpvi.fit(entry.model, entry.data, plan, guide=guide, static=static, seed=SEED, progress=False, **options)


def way_of(entry: Entry) -> str:
    """What ``fit`` needs beside model and records."""
    parts = ["static=" if entry.static else "", "guide=AutoAmortised(model)" if entry.guided else ""]
    return "as it is" + "".join(f", with {part}" for part in parts if part)


def verdict(entry: Entry, fits: bool) -> dict[str, Any]:
    """A line of the table; the check alone decides, unless a fit fails after it."""
    line: dict[str, Any] = {"model": entry.name, "after": entry.after, "eligible": entry.eligible}
    try:
        dpvi.check(entry.model, entry.data, guide=guide_of(entry), static=entry.static)
    except dpvi.ModelError as error:
        return {**line, "runs": False, "verdict": str(error.findings[0])}
    runs = True
    if fits:
        draws = fitted(entry, short_plan()).posterior("average").sample(20, key=jax.random.key(0))
        runs = all(bool(np.all(np.isfinite(value))) for value in draws.values())
    return {
        **line,
        "runs": runs,
        "fitted": fits,
        "verdict": way_of(entry) if runs else "ends in numbers that are not finite",
    }


def compared(entry: Entry) -> dict[str, Any]:
    """The posterior at a large ε beside that of NUTS."""
    result = fitted(entry, long_plan(), family=dpvi.FullRank(), estimator=dpvi.Aligned(num_draws=16))
    draws = result.posterior("average").sample(4000, key=jax.random.key(1))
    model = WITHOUT_DISCRETE.get(entry.name, entry.model)
    sampler = MCMC(NUTS(model), num_warmup=500, num_samples=1500, progress_bar=False)
    args = entry.data if isinstance(entry.data, tuple) else ()
    sampler.run(jax.random.key(2), *args, **({} if args else entry.data))
    exact, distances, ratios = sampler.get_samples(), [], []
    for site in draws.keys() & exact.keys():
        ours, theirs = np.asarray(draws[site]), np.asarray(exact[site])
        distances.append(np.max(np.abs(ours.mean(0) - theirs.mean(0)) / theirs.std(0)))
        ratios += list(np.ravel(ours.std(0) / theirs.std(0)))
    return {
        "model": entry.name,
        "distance of means": float(max(distances)),
        "ratio of standard deviations": [float(min(ratios)), float(max(ratios))],
        "within the limit": bool(max(distances) <= LIMIT),
    }


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    eligible = [line for line in lines if line["eligible"]]
    return {
        "models": len(lines),
        "eligible": len(eligible),
        "eligible that run": sum(line["runs"] for line in eligible),
        "share": sum(line["runs"] for line in eligible) / len(eligible),
        "others that run": sum(line["runs"] for line in lines if not line["eligible"]),
    }


def markdown(found: Mapping[str, Any]) -> str:
    rows = []
    for line in found["models"]:
        told = line["verdict"] if line["runs"] else f"refused: {line['verdict']}"
        rows.append((line["model"], line["after"], "yes" if line["eligible"] else "no", told))
    nuts = [
        (
            each["model"],
            f"{each['distance of means']:.2f}",
            "{:.2f} to {:.2f}".format(*each["ratio of standard deviations"]),
        )
        for each in found["NUTS"]
    ]
    total = found["summary"]
    return "\n".join(
        [
            "# Models after tutorials\n\n`make compatibility`\n",
            f"{total['eligible that run']} of {total['eligible']} eligible models run unchanged "
            f"({total['share']:.0%}); of the {total['models'] - total['eligible']} others {total['others that run']} "
            "were accepted.\n",
            table(("model", "after", "eligible", "verdict"), rows),
            "\n## Beside NUTS, at a large ε\n",
            "Largest distance of posterior means in standard deviations of NUTS, and ratios of standard deviations. "
            "Parameters that all records share have a normal law with all correlations, those of guides without.\n",
            table(("model", "distance", "ratios"), nuts),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "compatibility.json")
    parser.add_argument("--only", nargs="*", help="names of models")
    parser.add_argument("--fits", action="store_true", help="fit every model that passes the check")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = [entry for entry in ENTRIES if options.only is None or entry.name in options.only]
    lines, nuts = [], []
    for entry in chosen:
        lines.append(verdict(entry, options.fits))
        print(entry.name, lines[-1]["verdict"][:80], flush=True)
    for entry in chosen:
        if entry.name in COMPARED:
            nuts.append(compared(entry))
            print(nuts[-1], flush=True)
    found = {"models": lines, "summary": summary(lines), "NUTS": nuts}
    if options.only is None:
        write(found, options.output, markdown)


if __name__ == "__main__":
    main()
