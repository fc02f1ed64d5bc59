"""Shells with ten rings or more against the others: data, model, and accuracy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist

from studies.datasets import abalone

_SEXES = ("M", "F", "I")
_MANY_RINGS, _TRAINING_SHARE = 10, 0.8


class Problem(NamedTuple):
    """Features (n, 8), float32, and labels (n,), int32."""

    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray

    @property
    def train(self) -> tuple[np.ndarray, np.ndarray]:
        return self.features, self.labels


def load() -> Problem:
    """The table as published: sex one number, all columns standardised, the first four fifths for training.

    Standardising reads the records without noise, on the poster as here: ε is that of the fit alone.
    """
    table = abalone()
    columns = [
        [_SEXES.index(sex) for sex in table["Sex"]],
        *(table[name] for name in table if name not in ("Sex", "Rings")),
    ]
    features = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    labels = (np.asarray(table["Rings"], np.float64) >= _MANY_RINGS).astype(np.int32)
    return split(features, labels)


def split(features: np.ndarray, labels: np.ndarray) -> Problem:
    """Standardised columns, in the order of the file."""
    scaled = ((features - features.mean(axis=0)) / features.std(axis=0)).astype(np.float32)
    at = int(_TRAINING_SHARE * len(labels))
    return Problem(scaled[:at], labels[:at], scaled[at:], labels[at:])


def model(x: Any, y: Any) -> None:
    """Weights N(0, I), no intercept."""
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def accuracy(location: np.ndarray, problem: Problem) -> float:
    """Share of test records on the right side: P(y = 1) ≥ ½ where x·m ≥ 0, whatever the scales of a mean field."""
    return float(np.mean((problem.test_features @ location >= 0) == (problem.test_labels == 1)))
