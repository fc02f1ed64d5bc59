"""The experiment of the DP-ADVI poster on a PyMC model: accuracy of a logistic regression at several ε.

python -m examples.pymc_logistic_regression [--full] [--seed 0]

The poster put DP-ADVI into PyMC3 and classified Abalone, 4,177 records of 8 columns, by weights a priori N(0, I), with
a sampling rate of 0.02. Here are model, size and sampling rate; the records are simulated, so that the best accuracy
is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dpvi
from examples.common import arguments

EPSILONS = (1.0, 4.0)
WIDTH = 8


def model(num_records: int = 10) -> Any:
    """Weights a priori N(0, I) and a label for each record; the arrays are placeholders, records come in by ``fit``."""
    import pymc as pm

    with pm.Model() as regression:
        x = pm.Data("x", np.zeros((num_records, WIDTH)), dims=("person", "column"))
        weights = pm.Normal("weights", 0.0, 1.0, shape=WIDTH)
        pm.Deterministic("odds_ratios", pm.math.exp(weights))
        pm.Bernoulli("y", logit_p=x @ weights, observed=np.zeros(num_records, int))
    return regression


def main(given: Sequence[str] | None = None) -> dict[str, float]:
    """Run the example; returns the accuracy on fresh records by ε, and that of the weights that made them."""
    options = arguments(__doc__, given)
    num_records, num_steps = 4_177, 10_000 if options.full else 1_000
    random = np.random.default_rng(0)
    weights = random.normal(size=WIDTH)

    def draw(count: int) -> dict[str, np.ndarray]:
        x = random.normal(size=(count, WIDTH))
        return {"x": x, "y": (random.uniform(size=count) < 1 / (1 + np.exp(-x @ weights))).astype(int)}

    records, fresh = draw(num_records), draw(5_000)
    regression = dpvi.from_pymc(model(), record_dim="person")
    accuracies = {"best": float(np.mean((fresh["x"] @ weights > 0) == fresh["y"]))}
    for epsilon in EPSILONS:
        plan = dpvi.plan(epsilon=epsilon, delta=1e-5, sampling_rate=0.02, num_steps=num_steps, clip_norm=2.0)
        result = dpvi.fit(regression, records, plan, seed=options.seed, progress=options.full)
        found = np.asarray(result.posterior().sample(500)["weights"]).mean(axis=0)
        accuracies[f"epsilon {epsilon:g}"] = float(np.mean((fresh["x"] @ found > 0) == fresh["y"]))
        print(f"{result.guarantee}\naccuracy on fresh records: {accuracies[f'epsilon {epsilon:g}']:.3f}")
    print(f"accuracy of the weights that made them: {accuracies['best']:.3f}")
    return accuracies


if __name__ == "__main__":
    main()
