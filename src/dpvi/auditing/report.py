"""What an audit found, as numbers, as text and as a file."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpvi.auditing.bounds import Points
from dpvi.declared.plan import GaussianRelease, Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Audit:
    """The result of :func:`dpvi.audit`; it prints as a few lines and knows nothing of anybody's records.

    ``epsilon_lower`` holds with ``confidence`` of every mechanism of the plan's kind; :mod:`dpvi.auditing.bounds` says
    what that means and why. ``noise_share`` is the same bound as a share of the planned noise: the noise is at most so
    many times what is planned. ``epsilon_of_any_mechanism`` needs no such assumption and is far lower.
    """

    mode: str
    plan: Plan
    background: str
    num_trials: int  # on each side; in one run, canaries
    num_steps: int  # of a trial; where a plan measures, answers
    releases: tuple[GaussianRelease, ...]  # of a trial
    confidence: float
    statistic: str
    counts: dict[str, int]
    noise_share: float
    epsilon_lower: float
    epsilon_of_any_mechanism: float | None
    signal_lower: float  # μ of the Gaussian mechanism through the bounds on both error rates
    points: Points
    seed: int | None = None

    @property
    def promise(self) -> float:
        """ε of the plan."""
        return self.plan.epsilon

    @property
    def holds(self) -> bool:
        """Whether the measured lower bound is no larger than the promise."""
        return self.noise_share >= 1

    def __str__(self) -> str:
        level = f"{100 * self.confidence:g} %"
        share = "" if math.isinf(self.noise_share) else f" (noise at most {self.noise_share:.3f} times the planned)"
        lines = [
            _WHAT[self.mode].format(trials=f"{self.num_trials:,}", steps=self.num_steps),
            f"promise    epsilon = {self.promise:.4g} at delta = {self.plan.delta:.3g}",
            f"measured   epsilon >= {self.epsilon_lower:.4g} with confidence {level}{share}",
        ]
        if self.epsilon_of_any_mechanism is not None:
            lines.append(f"           epsilon >= {self.epsilon_of_any_mechanism:.4g} of any mechanism, Gaussian or not")
        lines.append(f"test       {self.statistic}: " + ", ".join(f"{v:,} {k}" for k, v in self.counts.items()))
        lines.append(
            "The promise holds as far as this audit can see."
            if self.holds
            else f"THE PROMISE IS BROKEN: what was released gives away more than the plan says (confidence {level}). "
            "Release nothing, and report this with the versions of dpvi and JAX."
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-serialisable form."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {
            "plan": self.plan.to_dict(),
            "releases": [dataclasses.asdict(release) for release in self.releases],
            "noise_share": None if math.isinf(self.noise_share) else self.noise_share,
            "points": {name: _rounded(values) for name, values in self.points._asdict().items()},
        }
        return {"promise": self.promise, "holds": self.holds, **fields}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def plot(self) -> Figure:
        """The measured trade-off curve beside the promised one; needs matplotlib."""
        from dpvi.auditing.plot import plot_audit

        return plot_audit(self)

    def save(self, path: str | Path) -> None:
        """Write the audit as JSON, or as a plot where the name ends in .png, .pdf or .svg."""
        path = check_suffix(path)
        if path.suffix == ".json":
            path.write_text(self.to_json() + "\n", encoding="utf-8")
        else:
            self.plot().savefig(path, dpi=150)


def check_suffix(path: str | Path) -> Path:
    """``path``, where an audit can be written under such a name, and drawn where it is a picture."""
    path = Path(path)
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"An audit is written as {', '.join(_SUFFIXES)}, got {path.name!r}.")
    if path.suffix != ".json":
        from dpvi.reporting.plots import check_drawing

        check_drawing()
    return path


_SUFFIXES = (".json", ".png", ".pdf", ".svg")
_WHAT = {
    "step": "The mechanism in its worst case: {trials} trials of {steps} steps without the canary, as many with it.",
    "fits": "Whole fits: {trials} of {steps} steps without the canary, as many with it.",
    "measuring": "Whole measuring runs: {trials} of {steps} answers without the canary, as many with it.",
    "one_run": "One fit of {steps} steps with {trials} canaries, each there by the toss of a coin.",
}


def _rounded(values: np.ndarray) -> list[float | None]:
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
