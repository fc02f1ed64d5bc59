"""``python -m experiments.one_line --table OFP.csv``: ``dpvi.glm`` beside twenty hand-chosen settings of stepwise runs.

The grid is what a careful user would try: five clip norms and four learning rates of 1,000 steps at sampling rate 0.05.
Its best point is chosen by the test data, which no user could do, and nobody pays for the nineteen others.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import dpvi
import dpvi.regression
from experiments.one_line.problem import FORMULA, SCHEMA, load

HERE = Path(__file__).parent
EPSILON, DELTA = 1.0, 1e-6
CLIP_NORMS = (0.3, 1.0, 3.0, 10.0, 30.0)
RATES = (0.003, 0.01, 0.03, 0.1)
STEPS, SAMPLING_RATE = 1000, 0.05


def log_loss(model: dpvi.regression.FormulaModel, posterior: dpvi.Posterior, test: dict[str, Any]) -> float:
    """Mean negative log probability of the test responses, by the posterior mean of their probability."""
    draws = posterior.sample(500, jax.random.key(0), deterministic=False)
    found = {name: np.asarray(draw, np.float64) for name, draw in draws.items()}
    chance = (1 / (1 + np.exp(-model.linear(model.rows(test), found)))).mean(axis=0)
    return float(-np.mean(np.log(np.where(test["stayed"], chance, 1 - chance))))


def main(arguments: Sequence[str] | None = None) -> Path:
    """Run the comparison; what the file has already is kept."""
    parser = argparse.ArgumentParser(prog="python -m experiments.one_line", description=__doc__)
    parser.add_argument("--table", type=Path, required=True, help="OFP.csv")
    parser.add_argument("--seeds", type=int, default=3, help="runs of dpvi.glm")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / "results.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"glm": [], "grid": []}
    train, test = load(given.table)
    model = dpvi.regression.FormulaModel(FORMULA, SCHEMA, "bernoulli")
    warnings.simplefilter("ignore")

    def keep() -> None:
        path.write_text(json.dumps(found, indent=1) + "\n")

    for seed in range(len(found["glm"]), given.seeds):
        fitted = dpvi.glm(FORMULA, train, SCHEMA, epsilon=EPSILON, delta=DELTA, seed=seed, progress=False)
        found["glm"].append({"seed": seed, "log_loss": log_loss(model, fitted.posterior, test)})
        keep()
    points = [(clip, rate) for clip in CLIP_NORMS for rate in RATES]
    for clip, rate in points[len(found["grid"]) :]:
        plan = dpvi.plan(EPSILON, DELTA, SAMPLING_RATE, STEPS, clip, schedule=dpvi.Schedule(move_share=1))
        records = model.arrays(train)
        result = dpvi.fit(model, records, plan, optimizer=optax.adam(rate), seed=0, progress=False)
        loss = log_loss(model, result.posterior("average"), test)
        found["grid"].append({"clip_norm": clip, "learning_rate": rate, "log_loss": loss})
        keep()
    best = min(each["log_loss"] for each in found["grid"])
    own = float(np.mean([each["log_loss"] for each in found["glm"]]))
    found |= {"best_of_grid": best, "mean_of_glm": own, "ratio": own / best}
    keep()
    print(f"log loss {own:.4f}, best of {len(points)} points {best:.4f}, ratio {own / best:.4f}")
    return path


if __name__ == "__main__":
    main()
