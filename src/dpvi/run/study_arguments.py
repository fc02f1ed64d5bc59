"""What ``fit_many`` is given: the records, plans and seeds of all fits, once their numbers are known to agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpvi.declared.plan import Plan
from dpvi.mechanism.rng import root_key
from dpvi.records.arrays import as_records, filled_up, structure_of
from dpvi.records.sampling import whole_tiles
from dpvi.records.sharding import Records
from dpvi.run.placement.hosts import several
from dpvi.run.untold import run_within_memory

FEWER = "give fit_many a smaller group_size or fewer data sets"


class Fits(NamedTuple):
    """The records, keys and seeds of some fits."""

    records: Any  # (fits, records, …), or (records, …) that all fits read
    same_data: bool
    keys: list[jax.Array]
    seeds: list[int] | None

    def records_of(self, number: int) -> Any:
        return self.records if self.same_data else jax.tree.map(lambda leaf: leaf[number], self.records)

    def filled_up(self, num_records: int) -> Records:
        """As a program reads them."""
        axis, size = int(not self.same_data), whole_tiles(num_records)
        rows = jax.tree.map(lambda leaf: filled_up(leaf, size, axis), self.records)
        return Records(rows, jnp.asarray((0, num_records), jnp.int32))

    @property
    def structure(self) -> Any:
        """Of one record."""
        one = structure_of(self.records)
        return one if self.same_data else structure_of(one)

    def chosen(self, numbers: Sequence[int]) -> Fits:
        """Those with these numbers, in this order."""
        if list(numbers) == list(range(len(self.keys))):
            return self  # and no copy of the records
        records = self.records
        if not self.same_data:
            records = jax.tree.map(lambda leaf: leaf[np.array(numbers)], records)
        seeds = None if self.seeds is None else [self.seeds[k] for k in numbers]
        return Fits(records, self.same_data, [self.keys[k] for k in numbers], seeds)


def checked_fits(
    data: Any, plan: Any, seeds: Sequence[int] | None, same_data: bool, directory: str | Path | None
) -> Fits:
    """Records, keys and seeds of all fits, once their numbers are known to agree."""
    if several():
        raise ValueError(
            "fit_many makes independent fits, which need no connection: start processes without jax.distributed, "
            "each with its own share of the fits."
        )
    _check_plans(plan)
    records, length = run_within_memory(FEWER, as_records, data)
    if same_data:
        num_fits, each = _asked_for(plan, seeds), "fit"
    else:
        num_fits, each = length, "data set"
        if any(leaf.ndim < 2 for leaf in jax.tree.leaves(records)):
            raise ValueError(
                "fit_many needs arrays with two leading axes, (data sets, records, …); a leaf has only one. To fit one "
                "data set many times, pass same_data=True."
            )
    # how many data sets were found is not said: of one data set, given without same_data=True, it is how many records
    hint = "" if same_data else " The first axis of data is that of data sets; for one alone, pass same_data=True."
    if not isinstance(plan, Plan) and len(plan) != num_fits:
        raise ValueError(f"plan must be one plan, or a list of one per {each}; got {len(plan)}.{hint}")
    if seeds is not None and (not hasattr(seeds, "__len__") or len(seeds) != num_fits):
        given = f"{len(seeds)} numbers" if hasattr(seeds, "__len__") else type(seeds).__name__
        raise ValueError(f"seeds must hold one number per {each}; got {given}.{hint}")
    if seeds is None and directory is not None:
        raise ValueError(
            "A study that can be taken up again needs seeds: without them its keys would have to be stored, and "
            "whoever reads them can remove the noise. Pass seeds=, one number per fit, or leave out directory=."
        )
    keys = [root_key(seed) for seed in ([None] * num_fits if seeds is None else seeds)]
    if seeds is None:
        return Fits(records, same_data, keys, None)
    _check_different(seeds)
    return Fits(records, same_data, keys, list(seeds))


def _check_plans(plan: Any) -> None:
    if isinstance(plan, Plan):
        return
    if not isinstance(plan, Sequence) or not all(isinstance(one, Plan) for one in plan):
        raise TypeError(
            "plan must come from dpvi.plan(...) or dpvi.plan_nonprivate(...), or be a list of such plans, one per data "
            f"set; got {type(plan).__name__}."
        )


def _asked_for(plan: Plan | Sequence[Plan], seeds: Any) -> int:
    """How many fits of one data set."""
    counted = seeds if isinstance(plan, Plan) else plan
    if not hasattr(counted, "__len__") or len(counted) == 0:
        raise ValueError(
            "same_data=True fits one data set once for every seed or for every plan, and there is none: pass seeds=, "
            "or a list of plans such as [plan] * 10, for keys from the operating system."
        )
    return len(counted)


def _check_different(seeds: Sequence[int]) -> None:
    """Refuse a seed that stands there twice; a message with its value would give noise away."""
    first: dict[int, int] = {}
    for position, seed in enumerate(seeds):
        if first.setdefault(int(seed), position) != position:
            raise ValueError(
                f"seeds must all differ, but numbers {first[int(seed)]} and {position} (from 0) are the same. Two runs "
                "with one seed draw the same records and add the same noise, so that the difference of what they "
                "release has no noise left and no guarantee holds. Pass a seed of its own for every run."
            )
