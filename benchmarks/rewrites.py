"""What is added to models costs little: ``python benchmarks/rewrites.py``.

Gradients of the terms of a batch, by one compiled program: of models as users write them (no plate, discrete latents,
latents that are integrated out, a written guide), beside the same term with the plate, the sum, the integral or the
guide written by hand. Both are timed in turns; the ratio of medians and quartiles of the ratios of turns go to
``--output`` as JSON, and as a table beside it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from harness.output import RESULTS, machine, table, write
from jax.scipy.special import betaln, gammaln
from numpyro.distributions import constraints

import dpvi
from dpvi.models.numpyro import NumPyroModel
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.records.arrays import structure_of

BATCH, LIMIT = 4096, 1.3


class Pair(NamedTuple):
    """A model as a user writes it, and by hand; both with a guide, or none."""

    name: str
    written: Callable
    by_hand: Callable
    data: Any
    guides: tuple[Callable, Callable] | None = None


def no_plate(x: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0, 1).expand([8]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def own_plate(x: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0, 1).expand([8]).to_event(1))
    with numpyro.plate("records", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def mixture(y: Any) -> None:
    weights, centres = shared_of_mixture()
    with numpyro.plate("records", len(y)):
        which = numpyro.sample("which", dist.Categorical(weights))
        numpyro.sample("y", dist.Normal(centres[which], 0.5), obs=y)


def mixture_by_hand(y: Any) -> None:
    weights, centres = shared_of_mixture()
    with numpyro.plate("records", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(centres, 0.5)), obs=y)


def shared_of_mixture() -> tuple[Any, Any]:
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    return weights, numpyro.sample("centres", dist.Normal(0, 2).expand([3]).to_event(1))


def effects(y: Any) -> None:
    centre, spread = shared_of_effects()
    with numpyro.plate("records", len(y)):
        own = numpyro.sample("own", dist.Normal(centre, spread))
        numpyro.sample("y", dist.Normal(own, 0.5), obs=y)


def effects_by_hand(y: Any) -> None:
    centre, spread = shared_of_effects()
    with numpyro.plate("records", len(y)):
        numpyro.sample("y", dist.Normal(centre, jnp.sqrt(spread**2 + 0.25)), obs=y)


def shared_of_effects() -> tuple[Any, Any]:
    return numpyro.sample("centre", dist.Normal(0, 1)), numpyro.sample("spread", dist.HalfNormal(1))


def players(trials: Any, hits: Any) -> None:
    a, b = numpyro.sample("a", dist.Gamma(2, 1)), numpyro.sample("b", dist.Gamma(2, 1))
    with numpyro.plate("records", len(hits)):
        share = numpyro.sample("share", dist.Beta(a, b))
        numpyro.sample("hits", dist.Binomial(trials, probs=share), obs=hits)


def players_by_hand(trials: Any, hits: Any) -> None:
    a, b = numpyro.sample("a", dist.Gamma(2, 1)), numpyro.sample("b", dist.Gamma(2, 1))
    chosen = gammaln(trials + 1.0) - gammaln(hits + 1.0) - gammaln(trials - hits + 1.0)
    with numpyro.plate("records", len(hits)):
        numpyro.factor("hits", chosen + betaln(a + hits, b + trials - hits) - betaln(a, b))
        numpyro.sample("seen", dist.Delta(0.0), obs=jnp.zeros(len(hits)))


def rates(hours: Any, failures: Any) -> None:
    a, b = numpyro.sample("a", dist.Gamma(2, 1)), numpyro.sample("b", dist.Gamma(2, 1))
    with numpyro.plate("records", len(hours)):
        own = numpyro.sample("own", dist.Gamma(a, b))
        numpyro.sample("failures", dist.Poisson(own * hours), obs=failures)


def rates_by_hand(hours: Any, failures: Any) -> None:
    a, b = numpyro.sample("a", dist.Gamma(2, 1)), numpyro.sample("b", dist.Gamma(2, 1))
    with numpyro.plate("records", len(hours)):
        numpyro.sample("failures", dist.GammaPoisson(a, b / hours), obs=failures)


def logits(trials: Any, hits: Any) -> None:
    centre, spread = shared_of_effects()
    with numpyro.plate("records", len(hits)):
        own = numpyro.sample("own", dist.Normal(centre, spread))
        numpyro.sample("hits", dist.Binomial(trials, logits=own), obs=hits)


def guide_by_hand(trials: Any, hits: Any) -> None:
    """The family of AutoAmortised, written out for this model."""

    def shared(name: str, support: Any) -> Any:
        at = numpyro.param(f"{name}_loc", 0.1)
        law = dist.Normal(at, numpyro.param(f"{name}_scale", 0.1, constraint=constraints.positive))
        return numpyro.sample(name, dist.TransformedDistribution(law, dist.biject_to(support)))

    centre, spread = shared("centre", constraints.real), shared("spread", constraints.positive)
    both = jnp.stack([trials, hits], axis=1).astype(float)
    features = jnp.where(both <= 3, both, 3 * (1 + jnp.log(jnp.maximum(both, 3.0) / 3)))
    pull = features @ numpyro.param("w", jnp.zeros(2)) + numpyro.param("b", 0.0)
    precision = jnp.exp(jnp.tanh(features) @ numpyro.param("v", jnp.zeros(2)) + numpyro.param("c", 0.0))
    total = spread**-2 + precision
    with numpyro.plate("records", len(hits)):
        numpyro.sample("own", dist.Normal((centre / spread**2 + precision * pull) / total, total**-0.5))


def pairs() -> list[Pair]:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(BATCH, 8)).astype("f"), random.normal(size=BATCH).astype("f")
    bits, trials = random.integers(0, 2, BATCH).astype("i4"), np.full(BATCH, 20, "i4")
    hits, hours = random.binomial(20, 0.3, BATCH).astype("i4"), (0.5 + random.random(BATCH)).astype("f")
    return [
        Pair("no latents, a plate of one's own", own_plate, own_plate, (x, bits)),
        Pair("a plate that is left out", no_plate, own_plate, (x, bits)),
        Pair("a discrete latent, summed over", mixture, mixture_by_hand, y),
        Pair("a normal latent, integrated out", effects, effects_by_hand, y),
        Pair("a Beta latent, integrated out", players, players_by_hand, (trials, hits)),
        Pair("a Gamma latent, integrated out", rates, rates_by_hand, (hours, hits)),
        Pair("a written guide", logits, logits, (trials, hits), (dpvi.AutoAmortised(logits), guide_by_hand)),
    ]


def program(model: Callable, guide: Callable | None, data: Any) -> Callable[[], Any]:
    """The gradients of all records of a batch, compiled, as a function of nothing."""
    batch = jax.tree.map(jnp.asarray, data)
    if guide is None:
        ready: Any = NumPyroModel(model, structure_of(data))
        point = jnp.full((ready.dimension,), 0.2)
        gradients = jax.jit(jax.vmap(jax.grad(ready.log_likelihood), (None, 0)))
        return lambda: jax.block_until_ready(gradients(point, batch))
    guided = GuidedModel(model, guide, structure_of(data))
    xi, eta = guided.initial(jax.random.key(0)), jnp.full((guided.num_base,), 0.3)
    by_record = jax.vmap(jax.grad(lambda xi, one: guided.term(xi, eta, guided.own_key(eta, one), one)), (None, 0))
    compiled = jax.jit(by_record)
    return lambda: jax.block_until_ready(compiled(xi, batch))


def seconds(run: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def timed(pair: Pair, turns: int) -> dict[str, Any]:
    guides = pair.guides or (None, None)
    ours, theirs = program(pair.written, guides[0], pair.data), program(pair.by_hand, guides[1], pair.data)
    ours(), theirs()
    calls = max(1, int(0.03 / seconds(theirs, 3)))
    times = np.array([(seconds(ours, calls), seconds(theirs, calls)) for _ in range(turns)])
    ratios = times[:, 0] / times[:, 1]
    lower, middle, upper = np.quantile(ratios, [0.25, 0.5, 0.75])
    return {
        "what": pair.name,
        "milliseconds": float(np.median(times[:, 0]) * 1e3),
        "milliseconds by hand": float(np.median(times[:, 1]) * 1e3),
        "ratio": float(middle),
        "quartiles": [float(lower), float(upper)],
        "within the limit": bool(middle <= LIMIT),
    }


def markdown(found: Mapping[str, Any]) -> str:
    rows = [
        (
            each["what"],
            f"{each['milliseconds']:.2f}",
            f"{each['milliseconds by hand']:.2f}",
            "{:.2f} ({:.2f} to {:.2f})".format(each["ratio"], *each["quartiles"]),
        )
        for each in found["pairs"]
    ]
    header = ("what", "ms as it is", "ms by hand", "ratio, quartiles of turns")
    around = (
        f"Gradients of {found['batch']} records, on {found['machine']['cores']} cores that other programs used, too."
    )
    return (
        "# What rewriting a model costs\n\n`python benchmarks/rewrites.py`\n\n"
        f"{around} The first line is one program twice.\n\n{table(header, rows)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "rewrites.json")
    parser.add_argument("--turns", type=int, default=31)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [timed(pair, options.turns) for pair in pairs()]
    print(write({"batch": BATCH, "machine": machine(), "pairs": lines}, options.output, markdown))


if __name__ == "__main__":
    main()
