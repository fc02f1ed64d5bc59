"""``dpvi evaluate``: whether the intervals of a result hold what they should, tried on simulated records."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpvi.cli.parser import add_command, add_json
from dpvi.cli.reading import add_result, read_result, told

if TYPE_CHECKING:
    from dpvi.evaluate.simulated import IntervalCheck

_LEVEL = 0.95


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "evaluate",
        help="try on simulated records whether intervals hold what they should",
        description="Simulate data sets like the one behind a result (its posterior, its released counts), fit each "
        "with the same plan, and count how often intervals hold the truth. No record is read, and it costs no privacy.",
        example="dpvi evaluate result.npz --datasets 20",
    )
    add_result(parser)
    parser.add_argument("--datasets", type=int, default=20, help="how many data sets (default: 20)")
    parser.add_argument("--records", type=int, help="in each (default: as far as released)")
    parser.add_argument("--seed", type=int, default=0, help="of the simulation (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_json(parser)
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Simulate, fit, count."""
    import dpvi
    from dpvi.evaluate.simulated import interval_check, simulated_like
    from dpvi.posterior.predictors import released_size

    reading = read_result(options)
    result = reading.result
    if reading.settings is not None and reading.settings.model == "table":
        raise ValueError(
            "The clusters of a table model have no order, so no interval of theirs can be right or wrong; fit the "
            "response by a formula, or look at the page of dpvi synth."
        )
    records = options.records if options.records is not None else released_size(result)
    with told():
        truths, data = simulated_like(result, options.datasets, records, options.seed)
        model = getattr(result.model, "function", result.model)
        fits = dpvi.fit_many(model, data, result.plan, progress=not options.quiet)
        check = interval_check(truths, [each.posterior() for each in fits], _LEVEL)
    if reading.regression is not None:
        check = _by_column(check, reading.regression.model.design.names)
    print(json.dumps(check.to_dict(), indent=2) if options.json else _text(check))
    return 0


def _by_column(check: IntervalCheck, columns: Sequence[str]) -> IntervalCheck:
    """With the weights of a formula named as ``dpvi summary`` names them."""
    named = {f"weights[{index}]": column for index, column in enumerate(columns)}
    return check._replace(names=tuple(named.get(name, name) for name in check.names))


def _text(check: IntervalCheck) -> str:
    width = max(len("parameter"), *map(len, check.names))
    lines = [f"{'parameter':<{width}}  held the truth"]
    lines += [f"{name:<{width}}  {share:>14.0%}" for name, share in zip(check.names, check.held, strict=True)]
    return "\n".join([*lines, "", check.verdict])
