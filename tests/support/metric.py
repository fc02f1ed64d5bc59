"""What the tests of the metric posterior share: models, and strategies driven by hand with answers in plain NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from support.measuring import measuring_plan

from dpvi.declared.measuring import Measuring
from dpvi.declared.plan import Plan
from dpvi.models.numpyro import NumPyroModel
from dpvi.release.requests import NORM_EDGES, Answered, CovariateMoments, Curvature, Request, Scores


class Records(NamedTuple):
    """Records as a strategy asks about them."""

    covariates: np.ndarray  # (N, columns)
    scores: Callable[[np.ndarray], np.ndarray]  # z -> (N, d)
    hessians: Callable[[np.ndarray], np.ndarray]  # z -> (N, d, d): of -log p


def drive(asking: Generator[Any, Any, Any], answering: Callable[[Request], np.ndarray]) -> tuple[Any, list[Answered]]:
    """What a generator of requests returns when ``answering`` answers them, and all of its requests and answers."""
    done: list[Answered] = []
    released = None
    while True:
        try:
            request = asking.send(released)
        except StopIteration as end:
            return end.value, done
        released = answering(request)
        done.append(Answered(request, released))


def answering(records: Records, noise_multiplier: float, seed: int) -> Callable[[Request], np.ndarray]:
    """Answers with noise."""
    random = np.random.default_rng(seed)

    def answer(request: Request) -> np.ndarray:
        exact = exact_answer(request, records)
        return exact + noise_multiplier / np.sqrt(request.units) * random.normal(size=exact.shape)

    return answer


def exact_answer(request: Request, records: Records) -> np.ndarray:
    if isinstance(request, (CovariateMoments, Curvature)):
        white = (
            _squares(records.covariates @ request.metric.T)
            if isinstance(request, CovariateMoments)
            else request.metric @ records.hessians(request.query) @ request.metric.T
        )
        sizes = np.linalg.norm(white, axis=(1, 2))
        return triangle((white / np.maximum(sizes, 1)[:, None, None]).sum(axis=0))
    white = records.scores(request.query) @ request.metric.T
    lengths = np.linalg.norm(white, axis=1)
    if isinstance(request, Scores):
        return (white / np.maximum(lengths, 1)[:, None]).sum(axis=0)
    return np.bincount(np.searchsorted(NORM_EDGES, lengths, "right"), minlength=len(NORM_EDGES) + 1).astype(np.float64)


def _squares(rows: np.ndarray) -> np.ndarray:
    return rows[:, :, None] * rows[:, None, :]


def plan_of(noise_multiplier: float, units: int = 1000, **settings: Any) -> Plan:
    """A label's plan with so many units."""
    plan = measuring_plan(noise_multiplier, **settings)
    releases = tuple(
        dataclasses.replace(each, count=units) if each.name == "gradients" else each for each in plan.releases
    )
    return dataclasses.replace(plan, releases=releases, measuring=Measuring(units=units))


def logistic_records(x: np.ndarray, y: np.ndarray) -> Records:
    def share(z: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x @ z))

    return Records(
        x,
        lambda z: x * (y - share(z))[:, None],
        lambda z: (share(z) * (1 - share(z)))[:, None, None] * _squares(x),
    )


SPREAD = 3.0  # of the prior on the log scale


def normal(y: Any) -> None:
    """A mean and a scale of which little is known."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, SPREAD))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def normal_model() -> NumPyroModel:
    return NumPyroModel(normal, jax.ShapeDtypeStruct((), jnp.dtype("float32")))


def normal_records(y: np.ndarray) -> Records:
    def scores(z: np.ndarray) -> np.ndarray:
        residuals = (y - z[0]) / np.exp(z[1])
        return np.stack([residuals / np.exp(z[1]), residuals**2 - 1], axis=1)

    def hessians(z: np.ndarray) -> np.ndarray:
        scale = np.exp(z[1])
        residuals = (y - z[0]) / scale
        mixed = 2 * residuals / scale
        return np.stack([[np.full(len(y), scale**-2), mixed], [mixed, 2 * residuals**2]]).transpose(2, 0, 1)

    return Records(np.zeros((len(y), 0)), scores, hessians)


def coin_records(y: np.ndarray) -> Records:
    def share(z: np.ndarray) -> float:
        return float(1 / (1 + np.exp(-z[0])))

    return Records(
        np.zeros((len(y), 0)),
        lambda z: (y - share(z))[:, None],
        lambda z: np.full((len(y), 1, 1), share(z) * (1 - share(z))),
    )


def triangle(matrix: np.ndarray) -> np.ndarray:
    """The upper triangle of a symmetric matrix, √2 times off the diagonal: as long as the matrix is."""
    first, second = np.triu_indices(len(matrix))
    return np.where(first == second, 1.0, np.sqrt(2.0)) * matrix[first, second]


def root_of(matrix: np.ndarray, exponent: float) -> np.ndarray:
    """A power of a symmetric positive matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T
