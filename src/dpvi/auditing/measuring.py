"""Mode ``"measuring"``: whole runs of a plan that measures, on data with and without a canary.

A run asks one question of every kind. Where it asks follows from the answer before, as in a fit, and the questions take
all units of the plan. The canary is longer than any bound in every kind of answer: its score, its curvature and its
covariates are clipped to norm 1, and it is counted in the last bin of lengths. So each answer is the worst case of the
accountant, but for substitution, where only sums of scores can move by 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from dpvi.auditing.bounds import Scores
from dpvi.auditing.canaries import derived_seed
from dpvi.auditing.mechanism import NoisyCounts, noisy_counts
from dpvi.auditing.step import NUM_BACKGROUND, Trials, with_histograms
from dpvi.declared.plan import GaussianRelease, Plan
from dpvi.mechanism.rng import root_key
from dpvi.models.numpyro import NumPyroModel
from dpvi.release import requests
from dpvi.release.requests import KINDS, Answered, CovariateMoments, Request
from dpvi.run.measuring import Answers, Contributions, measure
from dpvi.run.measuring.run import Strategy

DEFAULT_TRIALS = 3_000
NUM_ANSWERS = len(KINDS)
_SHARES = (0.2, 0.2, 0.2)  # of the units, for all kinds but the last, sums of scores
_FAR, _HIGH = 1e3, 1e6  # covariate and response of the canary
_TURNS = (0.3, 1.2)  # of a metric; which one is asked for follows from the answer before
_SLOTS = 64
_NAMES = {CovariateMoments: "moments", requests.Curvature: "curvature", requests.ScoreNorms: "lengths"}
_ALL = "likelihood ratio"

Records = tuple[np.ndarray, np.ndarray]


def run_measuring(
    plan: Plan,
    num_trials: int,
    seed: int | None,
    background: str,
    answers: Callable[..., Answers] = Answers,
    histograms: NoisyCounts = noisy_counts,
    contributions: Contributions | None = None,
) -> Trials:
    """Scores of ``num_trials`` runs without the canary and as many with it.

    Every run has a key of its own. Where the plan releases histograms, these are tried apart, less often. ``answers``,
    ``histograms`` and ``contributions`` are the shipped ones; tests put faulty ones in their place.
    """
    added = Contributions(audited_model(), _SLOTS) if contributions is None else contributions
    sides = measured_neighbours(plan, background)
    known: dict[Any, tuple[np.ndarray, np.ndarray]] = {}

    def expected(request: Request) -> tuple[np.ndarray, np.ndarray]:
        """The answer without noise, without the canary and with it: whoever guesses knows all records."""
        key = type(request), request.metric.tobytes()
        if key not in known:
            one = added.units_of_one(type(request))
            without, with_canary = (added.total(request, [side]) / one for side in sides)
            known[key] = without, with_canary
        return known[key]

    found: list[dict[str, list[float]]] = [{}, {}]
    for side, records in enumerate(sides):
        for trial in range(num_trials):
            key = root_key(derived_seed(seed, "measuring", side, trial))
            run = answers(added, plan, lambda records=records: [records], key)
            for name, score in _scores(measure(run, asking(plan)), expected, plan.noise_multiplier).items():
                found[side].setdefault(name, []).append(score)
    scores: Scores = {name: (np.array(found[0][name]), np.array(found[1][name])) for name in found[0]}
    units = {name: units_of(plan)[kind] for kind, name in _NAMES.items()} | {_ALL: plan.num_steps}
    releases = {name: (_part(plan, units[name]),) for name in scores}
    return with_histograms(plan, Trials(dict(scores), releases, NUM_ANSWERS), num_trials, seed, histograms)


def audited_model() -> NumPyroModel:
    """A linear regression on two covariates."""
    leaves = jax.ShapeDtypeStruct((2,), np.dtype(np.float32)), jax.ShapeDtypeStruct((), np.dtype(np.float32))
    return NumPyroModel(_regression, leaves)


def _regression(x: jax.Array, y: jax.Array) -> None:
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("records", y.shape[0]):
        numpyro.sample("y", dist.Normal(x @ slopes, 1.0), obs=y)


def measured_neighbours(plan: Plan, background: str) -> tuple[Records, Records]:
    """Two data sets, without the canary and with it; under substitution the first has its mirror, of opposite score."""
    far = np.array([[_FAR, 0.0]], np.float32)
    high = np.array([_HIGH], np.float32)
    opposed = background == "opposed"
    others = np.tile(far if opposed else np.array([[0.0, 1.0]], np.float32), (NUM_BACKGROUND, 1))
    responses = np.full(NUM_BACKGROUND, -_HIGH if opposed else 1.0, np.float32)
    with_canary = np.concatenate([others, far]), np.concatenate([responses, high])
    if plan.adjacency == "substitute":
        return (np.concatenate([others, far]), np.concatenate([responses, -high])), with_canary
    return (others, responses), with_canary


def units_of(plan: Plan) -> dict[type, int]:
    """How many units of the plan's pool each kind of question takes: all of them together."""
    counts = [max(1, int(share * plan.num_steps)) for share in _SHARES]
    return dict(zip(KINDS, [*counts, plan.num_steps - sum(counts)], strict=True))


def asking(plan: Plan) -> Strategy:
    """A strategy: one question of every kind, in one of two metrics, which follows from the answer before."""
    turn, point = _TURNS[0], np.zeros(2)
    for kind, units in units_of(plan).items():
        metric = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        asked: Any = kind
        released = yield asked(metric, units) if kind is CovariateMoments else asked(point, metric, units)
        turn = _TURNS[int(np.sum(released) > 0)]


def _scores(
    done: list[Answered],
    expected: Callable[[Request], tuple[np.ndarray, np.ndarray]],
    noise_multiplier: float,
) -> dict[str, float]:
    """The log likelihood ratio of all answers, and of those of some kinds, larger where the canary is there.

    An answer a of u units is normal around m₀ without the canary and m₁ with it, with variance σ²/u: its share is
    (m₁ − m₀)·(a − (m₀ + m₁)/2) u/σ².
    """
    found = {_ALL: 0.0}
    for request, released in done:
        without, with_canary = expected(request)
        loss = float((with_canary - without) @ (released - (with_canary + without) / 2))
        loss *= request.units / noise_multiplier**2
        found[_ALL] += loss
        if type(request) in _NAMES:
            found[_NAMES[type(request)]] = loss
    return found


def _part(plan: Plan, units: int) -> GaussianRelease:
    """So many units of the plan's pool."""
    whole = plan.gradients
    return GaussianRelease(whole.name, 1.0, units, whole.noise_multiplier, whole.clip_norm)
