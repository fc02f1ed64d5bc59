"""What a column of a table is: a model to simulate from, the published settings of its runs, the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

import dpvi
from dpvi.declared.columns import Column
from dpvi.declared.plan import Plan
from dpvi.families import MeanField

DELTA = 1e-5
SAMPLING_RATE = 0.1
NUM_GRADIENT_DRAWS = 10  # J of the published runs


class DataSet(NamedTuple):
    """A truth on the unconstrained scale, (d,), and records drawn at it, a pytree with leading axis N."""

    truth: np.ndarray
    records: Any


class ConjugatePosterior(Protocol):
    """The exact posterior of one data set, on the unconstrained scale."""

    def sample(self, rng: np.random.Generator, num_draws: int) -> np.ndarray:
        """(num_draws, d)."""
        ...

    def marginal_log_density(self, z: np.ndarray) -> np.ndarray:
        """Log density of every coordinate at z (d,), (d,)."""
        ...


class PaperNumber(NamedTuple):
    """Mean and standard deviation over reference points, as printed."""

    mean: float
    std: float


@dataclass(frozen=True)
class Problem:
    """A model with its simulator and the settings under which the noise-aware DPVI paper ran it.

    Attributes
    ----------
    model
        A NumPyro model whose unconstrained z is the paper's.
    simulate
        ``simulate(rng, num_records)``: parameters from the prior and records at them.
    conjugate
        The exact posterior given the records.
    clip_norm
        C.
    initial_location, initial_scale_parameter
        μ₀ of every coordinate of z, and u₀ of all (standard deviations are softplus(u)).
    scale_beta
        β of the scale parameters; β of locations is 1.
    location_lambda, scale_lambda
        λ_c of every location, and of all scales: v/√2 in the paper's notation.
    group_size
        Data sets that run side by side; small enough that the rows of their traces need not be thinned.
    covariate_law, columns
        For regressions: the law of the covariates as the paper declares it, and bounds for those who would pay for
        histograms instead.
    bernstein_sheldon
        ``(records, mechanism, seeds, num_draws)`` to draws of the 2018 baseline's posteriors, (k, num_draws, d), for
        stacked records of k data sets.
    regression_baseline
        The same for the 2019 ones, with the name of the sampler as a last argument.
    """

    name: str
    title: str
    model: Callable[..., None]
    simulate: Callable[[np.random.Generator, int], DataSet]
    conjugate: Callable[[Any], ConjugatePosterior]
    clip_norm: float
    initial_location: tuple[float, ...]
    initial_scale_parameter: float
    scale_beta: float
    location_lambda: tuple[float, ...]
    scale_lambda: float
    group_size: int
    covariate_law: Callable[[Any, int], Any] | None = None
    columns: tuple[Column, ...] | None = None
    bernstein_sheldon: Callable[[Any, Any, Sequence[int], int], np.ndarray] | None = None
    regression_baseline: Callable[[Any, Any, Sequence[int], int, str], np.ndarray] | None = None

    @property
    def dimension(self) -> int:
        return len(self.initial_location)

    @property
    def family(self) -> MeanField:
        return MeanField(scale="softplus", initial_scale=float(np.logaddexp(0.0, self.initial_scale_parameter)))

    @property
    def beta(self) -> tuple[float, ...]:
        return (1.0,) * self.dimension + (self.scale_beta,) * self.dimension

    @property
    def lambda_c(self) -> tuple[float, ...]:
        return self.location_lambda + (self.scale_lambda,) * self.dimension


@dataclass(frozen=True)
class Case:
    """A problem at one privacy budget.

    Attributes
    ----------
    name, title
        Key on the command line and in files; heading in tables.
    epsilon
        The budget that the paper states.
    noise_multiplier
        The σ its program used for it. Opacus' PRV accountant with its default tolerance makes it larger than needed:
        16 % at ε = 0.1.
    score_clip_norm
        C of the score posterior's own run, chosen on simulated records alone by
        ``python -m experiments.coverage.clip_norms``.
    paper
        ``{method: number}`` as printed.
    """

    name: str
    title: str
    problem: Problem
    epsilon: float
    noise_multiplier: float
    score_clip_norm: float
    paper: Mapping[str, PaperNumber] = field(default_factory=dict)

    def plan(self, num_steps: int, *, tight: bool = False) -> Plan:
        """The published noise with the ε it really spends or, if ``tight``, the noise that the stated ε needs."""
        return dpvi.plan(
            epsilon=self.epsilon if tight else None,
            noise_multiplier=None if tight else self.noise_multiplier,
            delta=DELTA,
            sampling_rate=SAMPLING_RATE,
            num_steps=num_steps,
            clip_norm=self.problem.clip_norm,
        )
