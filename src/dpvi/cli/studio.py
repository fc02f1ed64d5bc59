"""``dpvi studio``: the wizard in the browser, on this machine alone."""

from __future__ import annotations

import argparse
from typing import Any

from dpvi.cli.parser import add_command


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "studio",
        help="open a wizard in the browser, from a CSV file to a report",
        description="From a CSV file to a report in the browser, served on this machine alone; it contacts nothing.",
        example="dpvi studio --port 8765 --no-browser",
    )
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="where to listen (default: any free port)")
    parser.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    from dpvi.studio.guard import checked_port, loopback

    host, port = loopback(options.host), checked_port(options.port)  # before anything heavy is loaded
    from dpvi.studio.app import serve

    serve(host, port, browser=not options.no_browser)
    return 0
