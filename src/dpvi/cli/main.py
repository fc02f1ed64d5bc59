"""Entry point of the ``dpvi`` command.

A command is a module with ``add_parser(subparsers)``, which declares its arguments and sets ``func`` to the function
that runs it. Numerical packages are imported inside that function, so that ``dpvi --help`` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dpvi.cli import audit, demo, ledger, plan, schema, verify
from dpvi.declared.validation import CompilerError

COMMANDS = (plan, ledger, audit, schema, verify, demo)

_FAILURE = 2


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser = argparse.ArgumentParser(
        prog="dpvi",
        description="Bayesian inference under differential privacy: turn a budget into a plan, keep the ledger of a "
        "data set, audit the mechanism, declare the schema of a table, check what a saved result promises, or see a "
        "private fit of simulated records. Models and records are fitted from Python, with dpvi.fit.",
    )
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="command", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns
    -------
    int
        0 on success; 1 when an audit finds a broken promise; 2 when the input, the installed JAX or the machine was
        refused, with one sentence on standard error.
    """
    options = build_parser().parse_args(arguments)
    try:
        return int(options.func(options) or 0)
    except (ValueError, OSError, ImportError, MemoryError, CompilerError) as error:
        print(f"dpvi {options.command}: {error}", file=sys.stderr)
        return _FAILURE


if __name__ == "__main__":
    sys.exit(main())
