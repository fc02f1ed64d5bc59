"""The frozen plan: the one object that sampler, clip, noise and accountant all read.

A plan is a list of releases. Each is a Gaussian mechanism on a Poisson-sampled sum; the privacy cost of a plan is
the composition of all of them. A stored plan runs without the accountant installed: building one needs
:mod:`dpvi.privacy`, using one does not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpvi.declared import validation
from dpvi.declared.assumptions import RECORD, assumptions_of, unit_of
from dpvi.declared.clipping import Clipping, QuantileClipping, clipping_from_dict, clipping_to_dict
from dpvi.declared.columns import Column, checked_columns, columns_from_list, columns_to_list, counted
from dpvi.declared.guarantee import Guarantee
from dpvi.declared.measuring import Measuring
from dpvi.declared.schedule import Schedule

FORMAT_VERSION = 2
_READABLE = (1, FORMAT_VERSION)  # format 1 knew no clipping but by one norm
GRADIENTS = "gradients"
HISTOGRAMS = "histograms"


@dataclass(frozen=True)
class GaussianRelease:
    """``count`` releases of a Poisson-sampled sum whose summands have norm at most ``clip_norm``.

    Each adds N(0, (noise_multiplier * clip_norm)^2) to every coordinate, unless the plan's ``clipping`` says otherwise,
    which costs the same. One unit has at most ``rows_per_unit`` of the summands. Under add/remove the L2 sensitivity of
    the sum is ``rows_per_unit * clip_norm``, under substitution twice that; ``noise_multiplier`` is relative to
    ``clip_norm`` in all cases.
    """

    name: str
    sampling_rate: float
    count: int
    noise_multiplier: float
    clip_norm: float
    rows_per_unit: int = 1

    def __post_init__(self) -> None:
        validation.keep(
            self,
            sampling_rate=validation.sampling_rate(self.sampling_rate),
            count=validation.num_steps(self.count),
            noise_multiplier=validation.number("noise_multiplier", self.noise_multiplier),
            clip_norm=validation.number("clip_norm", self.clip_norm),
            rows_per_unit=validation.whole_number("rows_per_unit", self.rows_per_unit),
        )

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise on each coordinate, σC."""
        return 0.0 if self.noise_multiplier == 0 else self.noise_multiplier * self.clip_norm


@dataclass(frozen=True)
class Plan:
    """A complete, public description of what will be released about the records.

    Build one with :func:`dpvi.plan` (private) or :func:`dpvi.plan_nonprivate`. ``num_records`` is set only when the
    number of records is declared public, and blanking a record is then what add/remove adjacency means; otherwise that
    number is private and stands nowhere.
    ``covariates`` declares the columns whose histograms are released, ``schedule`` which steps move and which measure,
    ``clipping`` how gradients are clipped where not by one norm. ``measuring`` is set where a run takes no steps but
    asks a handful of questions of all records: "gradients" are then sums of scores, and their count is in units.
    """

    epsilon: float
    delta: float
    releases: tuple[GaussianRelease, ...]
    accountant: str
    adjacency: str = "add_remove"
    unit: str = RECORD
    num_records: int | None = None
    covariates: tuple[Column, ...] | None = None
    schedule: Schedule | None = None
    clipping: Clipping | None = None
    measuring: Measuring | None = None

    def __post_init__(self) -> None:
        validation.adjacency(self.adjacency)
        self._check_budget()
        validation.keep(self, releases=tuple(self.releases))
        names = [getattr(release, "name", release) for release in self.releases]
        if names.count(GRADIENTS) != 1 or len(set(names)) != len(names):
            raise ValueError(f"A plan needs exactly one release named {GRADIENTS!r} and distinct names, got {names}.")
        if len({release.rows_per_unit for release in self.releases}) > 1:
            rows = {release.name: release.rows_per_unit for release in self.releases}
            raise ValueError(
                f"All releases of a plan protect the same units, but rows_per_unit differs: {rows}. Give "
                "dpvi.plan(rows_per_unit=...) the most rows that a unit has."
            )
        for release in self.releases:
            if self.private:
                validation.clip_norm(release.clip_norm)
                validation.noise_multiplier(release.noise_multiplier)
        self._check_covariates(names)
        self._check_clipping()
        self._check_measuring()

    def _check_clipping(self) -> None:
        if self.clipping is None:
            return
        if not isinstance(self.clipping, Clipping):
            raise TypeError(f"clipping must be a dpvi.PerLayer or dpvi.QuantileClipping, got {self.clipping!r}.")
        if self.covariates:
            raise ValueError(
                "Histograms of covariates serve the score posterior alone, which needs releases clipped to one fixed "
                "norm. Plan without covariates=, or without clipping=."
            )
        if isinstance(self.clipping, QuantileClipping):
            validation.keep(self, clipping=self.clipping.with_batch(self.sampling_rate, self.num_records))
        elif not math.isclose(self.clip_norm, self.clipping.clip_norm, rel_tol=1e-9):
            raise ValueError(
                f"The clip norms of the layers combine to {self.clipping.clip_norm:.6g}, but the plan states "
                f"{self.clip_norm:.6g}. Make the plan with dpvi.plan(clipping=...), which leaves clip_norm out."
            )

    def _check_covariates(self, names: list[Any]) -> None:
        if (self.covariates is None) != (HISTOGRAMS not in names):
            raise ValueError(f"A plan declares covariates where it has a release named {HISTOGRAMS!r}, and only there.")
        if self.covariates is not None:
            validation.keep(self, covariates=checked_columns(self.covariates))
            self._check_histograms(self.release(HISTOGRAMS))
        if self.schedule is not None:
            if not isinstance(self.schedule, Schedule):
                raise TypeError(f"schedule must be a dpvi.Schedule, got {self.schedule!r}.")
            self.schedule.move_steps(self.num_steps)

    def _check_histograms(self, release: GaussianRelease) -> None:
        norm = math.sqrt(counted(self.covariates or ()))
        if (release.sampling_rate, release.count) != (1.0, 1) or release.clip_norm < norm:
            raise ValueError(
                f"A record counts once in each of {round(norm**2)} columns, so histograms are one release of all "
                f"records with clip norm {norm:.6g}, got {release}."
            )

    def _check_measuring(self) -> None:
        """A run adds its noise to vectors of norm 1, in as many units as are accounted for: exactly these, or none."""
        measuring = self.measuring
        if measuring is None:
            return
        if not isinstance(measuring, Measuring):
            raise TypeError(f"measuring must be a dpvi.Measuring, got {measuring!r}.")
        if not self.private or self.schedule is not None or self.clipping is not None:
            raise ValueError(
                "A plan with measuring= is private and takes no steps: it has no schedule and no clipping."
            )
        if self.num_records is None and self.covariates is None:
            raise ValueError(
                "A plan with measuring= needs the number of records: public (num_records=) or paid for (covariates=)."
            )
        if not _is_whole(self.release(GRADIENTS), measuring.units):
            raise ValueError(
                f"The release {GRADIENTS!r} of a plan with measuring= is of all records, {measuring.units} times, with "
                f"clip norm 1, got {self.release(GRADIENTS)}."
            )

    def _check_budget(self) -> None:
        # Zero is a legal ε here (a large δ can make it so), infinity is the plan that promises nothing.
        epsilon, delta = validation.number("epsilon", self.epsilon), validation.number("delta", self.delta)
        if not epsilon >= 0:
            raise ValueError(
                f"A plan's epsilon must be at least 0, or infinite for a plan without privacy, got {self.epsilon!r}."
            )
        validation.keep(self, epsilon=epsilon, delta=delta)
        if self.private:
            validation.delta(delta)
        if not isinstance(self.unit, str) or not self.unit:
            raise TypeError(f"unit must name who is protected, such as 'one record', got {self.unit!r}.")
        if self.num_records is not None:
            validation.keep(self, num_records=validation.num_records(self.num_records))

    @property
    def private(self) -> bool:
        return math.isfinite(self.epsilon)

    def release(self, name: str) -> GaussianRelease:
        """The release called ``name``."""
        for release in self.releases:
            if release.name == name:
                return release
        raise KeyError(f"The plan has no release named {name!r}; it has {[r.name for r in self.releases]}.")

    @property
    def gradients(self) -> GaussianRelease:
        return self.release(GRADIENTS)

    @property
    def sampling_rate(self) -> float:
        return self.gradients.sampling_rate

    @property
    def num_steps(self) -> int:
        return self.gradients.count

    @property
    def clip_norm(self) -> float:
        return self.gradients.clip_norm

    @property
    def noise_multiplier(self) -> float:
        return self.gradients.noise_multiplier

    @property
    def rows_per_unit(self) -> int:
        """The most rows that one unit, whom the plan protects as a whole, has in the data."""
        return self.gradients.rows_per_unit

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise on each coordinate of a step, σC; only where all steps have one."""
        if self.clipping is not None:
            raise ValueError(
                "This plan's noise has no single scale: it follows the clip norm of each layer or step. See "
                "plan.clipping.noise_scales(plan.noise_multiplier) for layers, and for an adaptive clip norm "
                "plan.clipping.gradient_noise_multiplier(plan.noise_multiplier) times trace.clip_norms."
            )
        return self.gradients.noise_scale

    @property
    def guarantee(self) -> Guarantee:
        """The privacy statement this plan makes, as an object that prints as a sentence."""
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            unit=unit_of(self),
            accountant=self.accountant,
            assumptions=assumptions_of(self) if self.private else (),
            fixed_size=self.num_records is not None,
            rows_per_unit=self.rows_per_unit,
        )

    def to_dict(self) -> dict[str, Any]:
        content = asdict(self)
        content["covariates"] = None if self.covariates is None else columns_to_list(self.covariates)
        content["clipping"] = None if self.clipping is None else clipping_to_dict(self.clipping)
        # so that versions that do not know these read all other plans, and refuse the ones they would get wrong
        if self.measuring is None:
            del content["measuring"]
        if self.rows_per_unit == 1:
            for release in content["releases"]:
                del release["rows_per_unit"]
        content["format_version"] = FORMAT_VERSION
        return _map_numbers(content, lambda x: "inf" if x == math.inf else x)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Plan:
        fields: dict[str, Any] = _map_numbers(content, lambda x: math.inf if x == "inf" else x)
        version = fields.pop("format_version", None)
        if version not in _READABLE:
            raise ValueError(
                f"This file holds a plan of format {version!r}; this version of dpvi reads formats "
                f"{' and '.join(map(str, _READABLE))}."
            )
        try:
            releases = tuple(GaussianRelease(**release) for release in fields.pop("releases"))
            columns, schedule = fields.pop("covariates", None), fields.pop("schedule", None)
            clipping, measuring = fields.pop("clipping", None), fields.pop("measuring", None)
            return cls(
                releases=releases,
                covariates=None if columns is None else columns_from_list(columns),
                schedule=None if schedule is None else Schedule(**schedule),
                clipping=None if clipping is None else clipping_from_dict(clipping),
                measuring=None if measuring is None else Measuring(**measuring),
                **fields,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"This is not a complete dpvi plan ({error}). Write plans with Plan.save.") from None

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"This is not a dpvi plan: it is not JSON ({error}).") from None
        if not isinstance(content, dict):
            raise ValueError("This is not a dpvi plan: expected a JSON object.")
        return cls.from_dict(content)

    def save(self, path: str | Path) -> None:
        text = self.to_json() + "\n"  # made first, so that a failure leaves no half-written file
        Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


def _is_whole(release: GaussianRelease, units: int) -> bool:
    """Whether every record is in it, with norm 1, so many times."""
    return (release.sampling_rate, release.count, release.clip_norm) == (1.0, units, 1.0)


def _map_numbers(value: Any, change: Callable[[Any], Any], name: str = "") -> Any:
    """Apply ``change`` to the numbers of a nested JSON-like value that may be infinite."""
    if isinstance(value, Mapping):
        return {key: _map_numbers(item, change, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_numbers(item, change) for item in value]
    return change(value) if name in ("epsilon", "clip_norm") else value
