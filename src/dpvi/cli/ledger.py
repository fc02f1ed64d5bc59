"""``dpvi ledger``: begin, show and mend the ledger of a protected data set."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dpvi.cli.parser import add_command, add_json


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "ledger",
        help="begin or show the ledger of a data set, or give back what a killed run reserved",
        description="The ledger of a protected data set: what all runs on it may spend together, and have spent.",
        example="dpvi ledger create people.ledger --epsilon 3 --delta 1e-5\ndpvi ledger show people.ledger",
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="action", required=True)
    create = add_command(
        actions,
        "create",
        help="begin a ledger; its terms never change",
        example="dpvi ledger create people.ledger --epsilon 3 --delta 1e-5 --unit 'one patient'",
    )
    create.add_argument("file", metavar="FILE", help="where to keep it; it must not exist")
    create.add_argument("--epsilon", type=float, required=True, help="limit of all runs together")
    create.add_argument("--delta", type=float, required=True, help="limit of all runs together")
    create.add_argument("--name", help="of the data set; by default that of the file")
    create.add_argument("--adjacency", default="add_remove", help="add_remove (default) or substitute")
    create.add_argument("--unit", help="who is protected, such as 'one patient'")
    create.add_argument("--rows-per-unit", type=int, default=1, help="the most rows that one unit has in the data")
    create.add_argument(
        "--share-for-sampling",
        type=float,
        default=0.0,
        help="share of delta for plans that sample records, such as 0.1; without it none may run",
    )
    create.set_defaults(func=run_create)
    show = add_command(
        actions,
        "show",
        help="print what is spent, reserved and left, and every run",
        example="dpvi ledger show people.ledger --verify",
    )
    show.add_argument("file", metavar="FILE")
    show.add_argument("--verify", action="store_true", help="also compute again what every run costs")
    add_json(show)
    show.set_defaults(func=run_show)
    declare = add_command(
        actions,
        "declare",
        help="reserve what several stored plans cost together, by tight accounting",
        example="dpvi ledger declare people.ledger first.json second.json",
    )
    declare.add_argument("file", metavar="FILE")
    declare.add_argument("plans", metavar="PLAN", nargs="+", help="a plan, from dpvi plan --output or Plan.save")
    declare.set_defaults(func=run_declare)
    release = add_command(
        actions,
        "release",
        help="give back what a killed run reserved: says that NOTHING of it was published or seen",
        description="Give back what a run reserved. By this you say that NOTHING of the run was published or seen: no "
        "result, no file, no plot, by nobody. If you do not know, leave it reserved.",
        example="dpvi ledger release people.ledger run-3 --because 'the machine lost power'",
    )
    release.add_argument("file", metavar="FILE")
    release.add_argument("name", metavar="NAME", help="of the run, as shown")
    release.add_argument("--because", default="", help="a note that stays in the ledger")
    release.set_defaults(func=run_release)


def run_create(options: argparse.Namespace) -> int:
    """Begin a ledger and print it."""
    from dpvi.ledger import Ledger

    if Path(options.file).exists():
        raise ValueError(
            f"{options.file} is there already; a ledger is begun once. See dpvi ledger show {options.file}."
        )
    names = ("epsilon", "delta", "name", "adjacency", "unit", "rows_per_unit", "share_for_sampling")
    print(Ledger(options.file, **{name: getattr(options, name) for name in names}))
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Print a ledger."""
    from dpvi.ledger import Ledger

    ledger = Ledger(options.file)
    if options.verify:
        ledger.verify()
    if options.json:
        print(json.dumps(_told(ledger), indent=2, ensure_ascii=False))
        return 0
    print(ledger, end="\n\n")
    print(ledger.guarantee)
    if options.verify:
        print("\nEvery run is charged what it costs.")
    return 0


def _told(ledger: Any) -> dict[str, Any]:
    runs = [
        {"name": each.name, "state": each.state, "epsilon_by_itself": each.epsilon} for each in ledger.entries.values()
    ]
    terms = {name: getattr(ledger.terms, name) for name in ("name", "epsilon", "delta", "adjacency", "unit")}
    return {**terms, "epsilon_left": ledger.epsilon_left, "runs": runs, "guarantee": str(ledger.guarantee)}


def run_declare(options: argparse.Namespace) -> int:
    """Declare stored plans, once each keeps what it claims."""
    from dpvi.declared.plan import Plan
    from dpvi.ledger import Ledger
    from dpvi.privacy.planning import verify

    ledger, plans = Ledger(options.file), [Plan.load(path) for path in options.plans]
    for plan in plans:
        verify(plan)
    name = ledger.declare(plans)
    print(f"Reserved as {name!r}: {len(plans)} runs, each of which may be made once.\n\n{ledger}")
    return 0


def run_release(options: argparse.Namespace) -> int:
    """Give a reservation back."""
    from dpvi.ledger import Ledger

    ledger = Ledger(options.file)
    ledger.release(options.name, because=options.because)
    print(f"{options.name!r} was given back, on your word that nothing of it was published or seen.\n\n{ledger}")
    return 0
