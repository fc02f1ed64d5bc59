"""``dpvi report``: one page about a result, for people who decide by what they can read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dpvi.cli.parser import add_command
from dpvi.cli.reading import add_result, read_result, told

_PAGES = (".html", ".htm")


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "report",
        help="write one self-contained page about a result",
        description="Write one HTML page about a result: guarantee in plain words, what was spent, model and priors, "
        "estimates, predictions and checks. It fetches nothing, and holds nothing but what the result holds.",
        example="dpvi report result.npz --output report.html",
    )
    add_result(parser)
    parser.add_argument("--output", metavar="FILE", help="where the page goes (default: beside the result)")
    parser.add_argument("--title", default="", help="of the page")
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Read the result and write the page."""
    from dpvi.cli.files import check_writable
    from dpvi.reporting import write_report

    path = Path(options.output or Path(options.result).with_suffix(".html"))
    if path.is_file() and path.suffix not in _PAGES:  # a page may be made anew, a table or a result may not be lost
        raise FileExistsError(f"{path} is there already and is no page; give a name that ends in .html.")
    reading = read_result(options)
    check_writable(path)
    settings: dict[str, Any] = {"title": options.title, "command": reading.command}
    with told():
        if reading.regression is not None:
            reading.regression.report(path, **settings)
        else:
            write_report(reading.result, path, **settings)
    print(f"The page is {path}. Open it in a browser.")
    return 0
