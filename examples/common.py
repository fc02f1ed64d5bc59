"""What the examples share: their options, and the two ways to train a model with a guide."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import jax

import dpvi
from dpvi.run.dpsvi import DPSVI


def arguments(description: str | None, given: Sequence[str] | None) -> argparse.Namespace:
    """Options of an example."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--full", action="store_true", help="the size of d3p's example; by default seconds")
    parser.add_argument("--use", choices=("DPSVI", "fit"), default="DPSVI", help="which of the two interfaces trains")
    parser.add_argument("--seed", type=int, help="make the run repeatable and NOT PRIVATE, for research")
    return parser.parse_args(given)


def train(
    options: argparse.Namespace, model: Callable, guide: Callable, optimizer: Any, plan: dpvi.Plan, *records: Any
) -> dpvi.Result:
    """Train by ``DPSVI``, as a script for NumPyro's ``SVI`` would, or by ``fit``; both take the same steps."""
    if options.use == "fit":
        given = {"guide": guide, "optimizer": optimizer, "seed": options.seed, "progress": options.full}
        result = dpvi.fit(model, records, plan, **given)
    else:
        key = None if options.seed is None else jax.random.key(options.seed)
        result = DPSVI(model, guide, optimizer, plan=plan).run(key, *records, progress_bar=options.full).result
    if not result.guarantee.private:
        print(result.guarantee.warning)
    return result
