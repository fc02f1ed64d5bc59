"""Entry point of the ``dpvi`` command.

A command is a module with ``add_parser(subparsers)``, which declares its arguments and sets ``func`` to the function
that runs it. Numerical packages are imported inside that function, so that ``dpvi --help`` answers at once.
"""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Sequence

from dpvi import __version__
from dpvi.cli import audit, demo, evaluate, fit, ledger, plan, preview, report, schema, studio, summary, synth, verify
from dpvi.cli.parser import Parser
from dpvi.declared.validation import CompilerError

COMMANDS = (schema, preview, plan, fit, summary, report, synth, evaluate, ledger, audit, verify, studio, demo)

_FAILURE = 2
_STOPPED = 130  # as shells say that somebody pressed Ctrl-C
_DESCRIPTION = (
    "Bayesian inference under differential privacy, from a table to a page about the fit. Declare its columns "
    "(schema), see what a budget would buy (preview), fit a model under it (fit), read the estimates (summary, "
    "report), draw synthetic tables (synth); keep one budget for all that is released of a data set (ledger), and "
    "check what results promise (verify, audit, evaluate)."
)


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser = Parser(prog="dpvi", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"dpvi {__version__}")
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
    except KeyboardInterrupt:
        print(f"dpvi {options.command}: stopped.", file=sys.stderr)
        return _STOPPED
    except (ValueError, TypeError, OSError, ImportError, MemoryError, CompilerError) as error:
        print(f"dpvi {options.command}: {_sentence(error)}", file=sys.stderr)
        return _FAILURE


def _sentence(error: Exception) -> str:
    """What went wrong on one line, and what to do where the error itself does not say."""
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"There is no file {error.filename}; check its name."
    if isinstance(error, IsADirectoryError) and error.filename is not None:
        return f"{error.filename} is a folder; give a file."
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"{error.filename} may not be read or written by you; ask for access, or choose another place."
    if isinstance(error, UnicodeDecodeError):
        return "The file is not text in UTF-8; save it again with that encoding."
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"There is no space left for {error.filename or 'the file'}; free some, or choose another place."
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
