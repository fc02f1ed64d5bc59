"""What the coverage test and calibration can tell: ``python benchmarks/evaluation.py [--output FILE.json]``.

The RMSE of a perfect posterior by K; that of Gaussian posteriors that are right, too wide, too narrow or biased; and
the calibration errors of true probabilities, below which differences are noise. The tables of
``docs/explanation/evaluation.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness.output import RESULTS, table, write

from dpvi.evaluate import binned_calibration_rmse, calibration_rmse, perfect_rmse, tarp

NUMBERS_OF_POSTERIORS = (250, 500, 2000)
DIMENSIONS = (1, 2, 12, 57)
WRONGS = {  # (width of the posterior, bias of every coordinate), in standard deviations
    "right": (1.0, 0.0),
    "width × 0.8": (0.8, 0.0),
    "width × 1.25": (1.25, 0.0),
    "bias 0.3 sd": (1.0, 0.3),
    "bias 0.5 sd": (1.0, 0.5),
    "bias 1 sd": (1.0, 1.0),
}
NUM_POSTERIORS, NUM_DRAWS, NUM_REPEATS = 2000, 500, 10
NUM_LABELS, NUM_SETS = 15_060, 400  # as many as Adult has for testing
LOGIT_MEAN, LOGIT_SD = -1.9, 2.0  # a quarter are positive


def perfect() -> list[dict[str, float]]:
    rows = []
    for number in NUMBERS_OF_POSTERIORS:
        single, mean = perfect_rmse(number), perfect_rmse(number, num_repeats=20)
        rows.append({"posteriors": number, "mean": single.mean, "single": single.upper, "redraws": mean.upper})
    return rows


def gaussian(dimension: int, width: float, bias: float, one_sided: bool = False) -> float:
    """Coverage RMSE of posteriors N(m + bias, width²) of truths that are N(m, 1), in every coordinate."""
    random = np.random.default_rng(dimension)
    truths = random.normal(size=(NUM_POSTERIORS, dimension))
    samples = bias + width * random.normal(size=(NUM_POSTERIORS, NUM_DRAWS, dimension))
    if one_sided:
        return float(tarp(samples, truths, references=samples.mean(axis=1) + 4 * width).rmse.mean)
    return float(tarp(samples, truths, rng=random, num_repeats=NUM_REPEATS).rmse.mean)


def calibration() -> dict[str, dict[str, float]]:
    """Errors of the true probabilities of labels."""
    random = np.random.default_rng(0)
    errors: dict[str, list[float]] = {"calibration_rmse": [], "binned_calibration_rmse": []}
    for _ in range(NUM_SETS):
        probabilities = 1 / (1 + np.exp(-random.normal(LOGIT_MEAN, LOGIT_SD, NUM_LABELS)))
        labels = random.random(NUM_LABELS) < probabilities
        errors["calibration_rmse"].append(calibration_rmse(probabilities, labels))
        errors["binned_calibration_rmse"].append(binned_calibration_rmse(probabilities, labels))
    return {
        name: {"mean": float(np.mean(each)), "upper": float(np.quantile(each, 0.95))} for name, each in errors.items()
    }


def measure() -> dict[str, Any]:
    return {
        "command": "python benchmarks/evaluation.py",
        "perfect": perfect(),
        "gaussian": {
            str(dimension): {name: gaussian(dimension, *wrong) for name, wrong in WRONGS.items()}
            for dimension in DIMENSIONS
        },
        "one_sided": gaussian(1, *WRONGS["bias 0.3 sd"], one_sided=True),
        "calibration": calibration(),
    }


def markdown(content: dict[str, Any]) -> str:
    """From the JSON alone."""
    rows = [
        [f"{row['posteriors']:,}", f"{row['mean']:.4f}", f"{row['single']:.3f}", f"{row['redraws']:.3f}"]
        for row in content["perfect"]
    ]
    header = ["K", "mean of a perfect posterior", "95 % of single draws below", "95 % of means over 20 redraws below"]
    lines = [
        "# What the tests of a posterior can tell",
        "",
        f"Made by `{content['command']}`.",
        "",
        table(header, rows),
    ]
    found = content["gaussian"]
    lines += [
        "",
        f"Gaussian posteriors, K = {NUM_POSTERIORS:,}, {NUM_DRAWS} draws, mean RMSE over {NUM_REPEATS} redraws; biases "
        "in every coordinate, all in one direction:",
        "",
        table(
            ["parameters", *WRONGS],
            [[dimension, *(f"{row[name]:.3f}" for name in WRONGS)] for dimension, row in found.items()],
        ),
        "",
        f"A bias of 0.3 sd of one parameter, with reference points at mean + 4 sd: {content['one_sided']:.3f}.",
        "",
        f"True probabilities, {NUM_LABELS:,} labels, logits N({LOGIT_MEAN:g}, {LOGIT_SD:g}²):",
        "",
        table(
            ["", "mean", "95 % below"],
            [
                [f"`{name}`", f"{each['mean']:.3f}", f"{each['upper']:.3f}"]
                for name, each in content["calibration"].items()
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "evaluation.json")
    print(write(measure(), parser.parse_args(arguments).output, markdown))


if __name__ == "__main__":
    main()
