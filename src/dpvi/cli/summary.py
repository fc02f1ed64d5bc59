"""``dpvi summary``: the estimates of a result with their intervals."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dpvi.cli.parser import add_command, add_json
from dpvi.cli.reading import add_result, read_result, told


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "summary",
        help="print the estimates of a result with their intervals",
        description="Print estimate, standard deviation and interval of every parameter of a result, and of runs that "
        "measured the parts of its width: sampling and privacy.",
        example="dpvi summary result.npz\ndpvi summary result.npz --probability 0.9 --json",
    )
    add_result(parser)
    parser.add_argument("--probability", type=float, default=0.95, help="of the intervals (default: 0.95)")
    add_json(parser)
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Read, compute the posterior and print it."""
    reading = read_result(options)
    with told():
        if reading.regression is not None:
            summary = reading.regression.summary(options.probability)
        else:
            summary = reading.result.posterior().summary(options.probability)
    guarantee = reading.result.guarantee
    if options.json:
        print(json.dumps({"guarantee": str(guarantee), "estimates": summary.to_dict()}, indent=2, ensure_ascii=False))
    else:
        print(guarantee, summary, sep="\n\n")
    return 0
