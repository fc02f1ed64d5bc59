"""Plans made beforehand, for machines without the accountant: one JSON object, ``{run: {ε: plan}}``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from dpvi.declared.plan import Plan
from experiments.adult_calibration.methods import RUNS
from experiments.adult_calibration.settings import Settings

Plans = dict[str, dict[float, Plan]]


def make_plans(settings: Settings, runs: Iterable[str], epsilons: Sequence[float]) -> Plans:
    """The plans of all private ``runs`` at all ``epsilons``."""
    makers = {name: maker for name in runs if (maker := RUNS[name].plan) is not None}
    return {name: {epsilon: maker(settings, epsilon) for epsilon in epsilons} for name, maker in makers.items()}


def save_plans(plans: Plans, path: Path) -> None:
    """Write ``plans``; the text is made first, so that a failure leaves no half-written file."""
    content = {name: {str(epsilon): plan.to_dict() for epsilon, plan in row.items()} for name, row in plans.items()}
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def load_plans(path: Path, settings: Settings, runs: Iterable[str], epsilons: Sequence[float]) -> Plans:
    """The stored plans of ``runs`` and ``epsilons``; refused where one is missing or was made for other settings."""
    content = json.loads(path.read_text(encoding="utf-8"))
    plans: Plans = {}
    for name in runs:
        if RUNS[name].plan is None:
            continue
        stored = {float(epsilon): Plan.from_dict(plan) for epsilon, plan in content.get(name, {}).items()}
        missing = [f"{epsilon:g}" for epsilon in epsilons if epsilon not in stored]
        if missing:
            raise ValueError(f"{path} has no plan of run {name!r} for epsilon {', '.join(missing)}; write plans again.")
        plans[name] = {epsilon: stored[epsilon] for epsilon in epsilons}
        for plan in plans[name].values():
            _check(path, plan, settings)
    return plans


def _check(path: Path, plan: Plan, settings: Settings) -> None:
    planned = (plan.delta, plan.sampling_rate, plan.num_steps)
    wanted = (settings.delta, settings.sampling_rate, settings.num_steps)
    if planned != wanted:
        raise ValueError(
            f"{path} was made for (delta, sampling rate, steps) = {planned}, the study has {wanted}; write plans again."
        )
