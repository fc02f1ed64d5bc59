"""Accuracy on Abalone by PyMC's own ADVI, without privacy: ``python experiments/abalone/pymc_reference.py``.

Apart from the study because PyMC is no dependency of this project. Steps and rate are those of the published
program. Writes ``pymc.json`` beside this file, which the study takes its line from.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pymc

from experiments.abalone.problem import accuracy, load

NUM_STEPS, LEARNING_RATE, NUM_SEEDS = 20_000, 0.01, 3


def main() -> None:
    problem = load()
    scores = []
    for seed in range(NUM_SEEDS):
        with pymc.Model():
            weights = pymc.Normal("weights", 0.0, 1.0, shape=problem.features.shape[1])
            share = pymc.math.invlogit(pymc.math.dot(problem.features.astype(np.float64), weights))
            # kept off 0 and 1, as in the published program: there the gradient is not a number
            pymc.Bernoulli("y", p=1e-6 + (1 - 2e-6) * share, observed=problem.labels)
            optimizer = pymc.adagrad_window(learning_rate=LEARNING_RATE)
            fitted = pymc.fit(NUM_STEPS, method="advi", random_seed=seed, progressbar=False, obj_optimizer=optimizer)
        scores.append(accuracy(np.asarray(fitted.mean.eval()), problem))
    content = {"pymc": pymc.__version__, "num_steps": NUM_STEPS, "learning_rate": LEARNING_RATE, "accuracies": scores}
    Path(__file__).with_name("pymc.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(content))


if __name__ == "__main__":
    main()
