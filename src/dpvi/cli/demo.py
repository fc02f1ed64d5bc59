"""``dpvi demo``: a private logistic regression on simulated records, from budget to a page that may be published."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dpvi.cli.parser import add_command

NUM_RECORDS = 10_000
NUM_PEOPLE = 6_000
WEIGHTS = (1.0, -0.5, 0.25, 0.0, -1.5)
COLUMNS = tuple(f"x{i}" for i in range(len(WEIGHTS)))


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "demo",
        help="fit a private logistic regression on simulated records",
        example="dpvi demo\ndpvi demo --csv people.csv",
    )
    parser.add_argument("--epsilon", type=float, default=1.0, help="privacy budget (default: 1.0)")
    parser.add_argument("--output", type=Path, default=Path("demo"), help="folder for the plot and the result")
    parser.add_argument("--seed", type=int, default=None, help="repeatable run, NOT PRIVATE (default: system entropy)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="only write a small table of simulated people")
    parser.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """Plan, fit, print and plot."""
    if arguments.csv is not None:
        return write_people(arguments.csv)
    import dpvi
    from dpvi.reporting import write_report

    model, data = _model(), simulate()
    columns = [dpvi.Numeric(-4, 4)] * len(WEIGHTS)
    budget = {"epsilon": arguments.epsilon, "delta": 1e-5}
    plan = dpvi.plan(**budget, covariates=columns)
    print(plan.guarantee, end="\n\n")
    result = dpvi.fit(model, data, plan, seed=arguments.seed)
    steps = dpvi.plan(**budget, sampling_rate=0.02, num_steps=4000, clip_norm=3.0)
    usual = dpvi.fit(model, data, steps, seed=arguments.seed, progress=False)
    without_privacy = dpvi.plan_nonprivate(sampling_rate=1.0, num_steps=2000)
    reference = dpvi.fit(model, data, without_privacy, seed=0, progress=False)
    posteriors = {
        "non-private": reference.posterior("average"),
        "last iterate": usual.posterior("last"),
        "noise-aware": result.posterior(),
    }
    print(table(posteriors))
    arguments.output.mkdir(parents=True, exist_ok=True)
    result.save(arguments.output / "result.npz")
    verdict = result.guarantee.warning or "It may be published."
    print(f"\nSaved the result to {arguments.output / 'result.npz'}. {verdict}")
    plot(posteriors, arguments.output / "posterior.png")
    page = write_report(
        result,
        arguments.output / "report.html",
        posterior=posteriors["noise-aware"],
        names={"w": COLUMNS},
        title="A private logistic regression",
        facts={"Formula": f"y ~ {' + '.join(COLUMNS)}", "Data": f"{NUM_RECORDS:,} simulated records"},
        command="dpvi demo",
    )
    print(f"Wrote a page about it: {page}. Open it in a browser.")
    return 0


def simulate() -> tuple[Any, Any]:
    """Records from a logistic regression with known weights."""
    import numpy as np

    rng = np.random.default_rng(1)
    x = rng.normal(size=(NUM_RECORDS, len(WEIGHTS))).astype(np.float32)
    y = rng.random(NUM_RECORDS) < 1 / (1 + np.exp(-x @ np.array(WEIGHTS)))
    return x, y.astype(np.int32)


def _model() -> Any:
    import numpyro
    import numpyro.distributions as dist

    def model(x: Any, y: Any = None) -> None:
        weights = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("records", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    return model


def table(posteriors: dict[str, Any]) -> str:
    """Mean ± standard deviation of every weight by every method, beside the truth."""
    width = max(map(len, posteriors)) + 8
    lines = [f"{'':8}{'truth':>8}" + "".join(f"{name:>{width}}" for name in posteriors)]
    summaries = [posterior.summary() for posterior in posteriors.values()]
    for i, truth in enumerate(WEIGHTS):
        cells = "".join(f"{f'{s.mean[i]:.3f} ± {s.sd[i]:.3f}':>{width}}" for s in summaries)
        lines.append(f"{summaries[0].names[i]:8}{truth:>8.2f}{cells}")
    return "\n".join(lines)


def plot(posteriors: dict[str, Any], path: Path) -> None:
    """95 % intervals of every weight by every method."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("No plot: install dpvi[plot] for it.")
        return
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for offset, (name, posterior) in enumerate(posteriors.items()):
        summary = posterior.summary()
        at = [i + 0.16 * (offset - (len(posteriors) - 1) / 2) for i in range(len(WEIGHTS))]
        errors = [summary.mean - summary.lower, summary.upper - summary.mean]
        axes.errorbar(at, summary.mean, yerr=errors, fmt="o", markersize=4, capsize=3, label=name)
    axes.scatter(range(len(WEIGHTS)), WEIGHTS, marker="_", s=900, color="0.6", zorder=0, label="truth")
    axes.set_xticks(range(len(WEIGHTS)), [f"w[{i}]" for i in range(len(WEIGHTS))])
    axes.set_ylabel("weight, 95 % interval")
    axes.legend(frameon=False, ncols=3, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Saved a plot of the intervals to {path}.")


def write_people(path: Path) -> int:
    """A table of simulated people, for trying commands on: nobody in it exists."""
    from dpvi.cli.files import new_file, write_text

    write_text(new_file(path), people())
    print(f"{NUM_PEOPLE:,} simulated people are in {path}. Next: dpvi schema draft {path} --output schema.toml")
    return 0


def people() -> str:
    """CSV: age, hours of work, schooling, sector, children, and whether somebody earns much."""
    import numpy as np

    rng = np.random.default_rng(7)
    age = rng.integers(18, 80, NUM_PEOPLE)
    schooling = np.clip(np.rint(rng.normal(12, 3, NUM_PEOPLE) - (age > 60)), 4, 20).astype(int)
    hours = np.clip(np.rint(rng.normal(40 - 0.15 * np.abs(age - 45), 9)), 1, 90).astype(int)
    sector = np.where(rng.random(NUM_PEOPLE) < 0.2 + 0.03 * (schooling - 4), 1, rng.integers(0, 3, NUM_PEOPLE))
    children = np.minimum(rng.poisson(np.where(age > 25, 1.3, 0.3)), 9)
    score = -4 + 0.03 * age + 0.05 * (hours - 40) + 0.2 * (schooling - 12) + 0.6 * (sector == 1)
    earns = rng.random(NUM_PEOPLE) < 1 / (1 + np.exp(-score))
    names = np.array(["private", "public", "self-employed"])[sector]
    columns = (age, hours, schooling, names, children, np.where(earns, "yes", "no"))
    lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join(["age,hours,schooling,sector,children,earns_much", *lines]) + "\n"
