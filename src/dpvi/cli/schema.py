"""``dpvi schema``: draft the schema of a table from a file, or check a table against one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = subparsers.add_parser(
        "schema",
        help="draft a table's schema, or check a table against one",
        description="The schema of a table: its columns with public bounds and levels.",
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="action", required=True)
    draft = actions.add_parser(
        "draft",
        help="guess a schema from a file; what was read from the records is marked and must be confirmed",
        description="Guess a schema from a CSV or Parquet file. The draft is sensitive until it is confirmed.",
    )
    draft.add_argument("table", metavar="TABLE", help="a .csv or .parquet file")
    draft.add_argument("--output", metavar="FILE", help="write the draft to this file; it must not exist")
    draft.add_argument(
        "--missing",
        metavar="TEXT",
        action="append",
        default=[],
        help="a text that stands for a missing value, such as ?",
    )
    draft.set_defaults(func=run_draft)
    check = actions.add_parser(
        "check",
        help="say whether every value of a table lies within a schema",
        description="Say whether every value of a table lies within a schema. The answer is for the custodian.",
    )
    check.add_argument("schema", metavar="SCHEMA", help="a .toml file")
    check.add_argument("table", metavar="TABLE", help="a .csv or .parquet file")
    check.set_defaults(func=run_check)


def run_draft(options: argparse.Namespace) -> int:
    """Print or write a draft."""
    from dpvi.table import draft_schema

    text = draft_schema(options.table, missing_markers=("", *options.missing))
    if not options.output:
        print(text, end="")
        return 0
    path = Path(options.output)
    with open(path, "x", encoding="utf-8") as file:  # a schema that someone corrected must not be lost
        file.write(text)
    print(f"Written to {path}. Replace or confirm every marked entry, then set confirmed_public = true.")
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Encode a table and refuse every value outside the schema."""
    from dpvi.table import Schema

    Schema.load(options.schema).encode(options.table, outside="raise")
    print("SENSITIVE (not private, do not share): every value lies within the schema.", file=sys.stderr)
    return 0
