"""Accuracy on Abalone by PyMC's own ADVI, without privacy: ``python experiments/abalone/pymc_reference.py``.

Apart from the study because PyMC is no dependency of this project. Writes ``results/pymc.json`` beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pymc

from experiments.abalone.problem import accuracy, load

NUM_STEPS, NUM_SEEDS = 20_000, 3


def main() -> None:
    problem = load()
    scores = []
    for seed in range(NUM_SEEDS):
        with pymc.Model():
            weights = pymc.Normal("weights", 0.0, 1.0, shape=problem.features.shape[1])
            pymc.Bernoulli("y", logit_p=problem.features.astype(np.float64) @ weights, observed=problem.labels)
            fitted = pymc.fit(NUM_STEPS, method="advi", random_seed=seed, progressbar=False)
        scores.append(accuracy(np.asarray(fitted.mean.eval()), problem))
    content = {"pymc": pymc.__version__, "num_steps": NUM_STEPS, "accuracies": scores}
    path = Path(__file__).parent / "results" / "pymc.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(content))


if __name__ == "__main__":
    main()
