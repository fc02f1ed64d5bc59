"""How commands are declared: one sentence for wrong arguments, and an example at the end of every help."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

_EXAMPLE = "example:\n"
_REFUSED = 2


class Parser(argparse.ArgumentParser):
    """A parser that answers wrong arguments in one sentence, as commands answer wrong input."""

    def error(self, message: str) -> NoReturn:
        self.exit(_REFUSED, f"{self.prog}: {message}; see {self.prog} --help.\n")


class _Format(argparse.HelpFormatter):
    """Wraps descriptions, and leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLE) else super()._fill_text(text, width, indent)


def add_command(subparsers: Any, name: str, *, help: str, example: str, description: str = "") -> Parser:
    """A command or an action of one, with an ``example`` of one line or several."""
    lines = "\n".join(f"  {line}" for line in example.splitlines())
    said = description or f"{help[0].upper()}{help[1:]}."
    return subparsers.add_parser(name, help=help, description=said, epilog=_EXAMPLE + lines, formatter_class=_Format)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Let a command print what a program can read."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_budget(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """ε and δ."""
    parser.add_argument("--epsilon", type=float, required=required, help="privacy budget, such as 1")
    parser.add_argument("--delta", type=float, required=required, help="probability that it may fail, such as 1e-6")
