"""Results as commands read them: the file, its model where one is known, and the settings beside it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from dpvi.cli.run_file import RunSettings
    from dpvi.posterior import Result


@dataclass(frozen=True)
class Reading:
    """A result with what is known of it."""

    path: Path
    result: Result
    settings: RunSettings | None
    regression: Any = None  # where it is of a formula

    @property
    def command(self) -> str:
        """What repeats the run, where that is known."""
        from dpvi.cli.run_file import beside

        return "" if self.settings is None else f"dpvi fit {beside(self.path).name}"


def add_result(parser: argparse.ArgumentParser) -> None:
    """The arguments of a command that reads a result."""
    parser.add_argument("result", metavar="RESULT", help="a .npz file, from dpvi fit or Result.save")
    parser.add_argument(
        "--model",
        metavar="FILE.py:NAME",
        help="its model, where it is a program; give one you trust",
    )
    parser.add_argument("--key", metavar="PUBLIC", help="PEM file of the Ed25519 public key that must have signed it")


def read_result(options: argparse.Namespace) -> Reading:
    """Read a result with its model."""
    from dpvi.cli.models import TABLE, function_of, model_of
    from dpvi.cli.run_file import beside, read_run_file
    from dpvi.posterior import Result

    path = Path(options.result)
    result = Result.load(path, verify_key=options.key)
    settings = read_run_file(beside(path)) if beside(path).is_file() else None
    if result.recipe is not None:
        from dpvi.regression import regression_of

        return Reading(path, result, settings, regression_of(result, str(path)))
    model = None
    if options.model:
        model = function_of(options.model)
    elif settings is not None and settings.model == TABLE:
        model = model_of(settings)
    elif settings is not None and settings.model:
        _tell_of_program(settings.model, beside(path))
    if model is not None:
        result = Result.load(path, model=model, verify_key=options.key)
    return Reading(path, result, settings)


def _tell_of_program(model: str, notes: Path) -> None:
    """Say that a program was left alone: a result may come from somebody else, and reading it must run none."""
    print(
        f"Warning: {notes} says that the model is {model}, a program. Reading a result runs none: if you trust it "
        f"and a model is needed, add --model {model}.",
        file=sys.stderr,
    )


@contextmanager
def told() -> Iterator[None]:
    """Warnings of a computation as single sentences on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for text in dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, UserWarning)):
        print(f"Warning: {text}", file=sys.stderr)
