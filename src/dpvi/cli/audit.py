"""``dpvi audit``: measure what the mechanism of a plan gives away about a canary, beside what the plan promises."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dpvi.cli.parser import add_command, add_json

if TYPE_CHECKING:
    from dpvi.declared.plan import Plan

_SETTINGS = ("epsilon", "delta", "sampling_rate", "num_steps", "clip_norm")
_BROKEN = 1


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "audit",
        help="measure what the mechanism gives away, on canaries",
        description="Run the shipped mechanism on canaries and print a lower bound on epsilon beside the promise of a "
        "plan. No records are needed. The exit status is 1 where the promise is broken.",
        example="dpvi audit --epsilon 1 --delta 1e-5 --output audit.png\ndpvi audit plan.json --json",
    )
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a stored plan; or give the settings of one:")
    parser.add_argument("--epsilon", type=float, default=1.0, help="budget (default: 1.0)")
    parser.add_argument("--delta", type=float, default=1e-5, help="probability that it may fail (default: 1e-5)")
    parser.add_argument("--sampling-rate", type=float, default=0.5, help="of a record in a step (default: 0.5)")
    parser.add_argument("--num-steps", type=int, default=10, help="number of steps (default: 10)")
    parser.add_argument("--clip-norm", type=float, default=1.0, help="clip norm (default: 1.0)")
    parser.add_argument("--mode", help="step (default), fits or one_run; of a plan that measures measuring (default)")
    parser.add_argument("--trials", type=int, help="trials without the canary, and as many with it; or canaries")
    parser.add_argument("--confidence", type=float, default=0.99, help="of the bound (default: 0.99)")
    parser.add_argument("--background", default="orthogonal", help="other records: orthogonal (default) or opposed")
    parser.add_argument("--seed", type=int, help="repeatable audit (default: system entropy)")
    add_json(parser)
    parser.add_argument(
        "--output", action="append", default=[], metavar="FILE", help="write .json, .png, .pdf or .svg; may be repeated"
    )
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Audit one plan, print and write what was found."""
    from dpvi.auditing import audit
    from dpvi.auditing.report import check_suffix

    for path in options.output:
        check_suffix(path)  # before minutes of work
    found = audit(
        _plan(options),
        mode=options.mode,
        num_trials=options.trials,
        confidence=options.confidence,
        background=options.background,
        seed=options.seed,
    )
    for path in options.output:
        found.save(path)
    print(found.to_json() if options.json else found)
    return 0 if found.holds else _BROKEN


def _plan(options: argparse.Namespace) -> Plan:
    from dpvi.declared.plan import Plan
    from dpvi.privacy.planning import plan

    if options.plan is not None:
        return Plan.load(options.plan)
    return plan(**{name: getattr(options, name) for name in _SETTINGS})
