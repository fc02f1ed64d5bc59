"""``dpvi schema``: draft the schema of a table from a file, or check a table against one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from dpvi.cli.parser import add_command


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "schema",
        help="draft a table's schema, or check a table against one",
        description="The schema of a table: its columns with public bounds and levels.",
        example="dpvi schema draft people.csv --output schema.toml\ndpvi schema check schema.toml people.csv",
    )
    actions = parser.add_subparsers(title="actions", dest="action", metavar="action", required=True)
    draft = add_command(
        actions,
        "draft",
        help="guess a schema from a file; what was read from the records is marked and must be confirmed",
        description="Guess a schema from a CSV or Parquet file. The draft is sensitive until it is confirmed.",
        example='dpvi schema draft people.csv --missing "?" --output schema.toml',
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
    check = add_command(
        actions,
        "check",
        help="say whether every value of a table lies within a schema",
        description="Say whether every value of a table lies within a schema. The answer is for the custodian.",
        example="dpvi schema check schema.toml people.csv",
    )
    check.add_argument("schema", metavar="SCHEMA", help="a .toml file")
    check.add_argument("table", metavar="TABLE", help="a .csv or .parquet file")
    check.set_defaults(func=run_check)
    confirm = add_command(
        actions,
        "confirm",
        help="say that all of a draft is public knowledge",
        description="Confirm a draft. By this you say that EVERY bound and level in it is public knowledge: known from "
        "a questionnaire, a code book or the law, and not from the records. Correct the file with an editor before.",
        example="dpvi schema confirm schema.toml",
    )
    confirm.add_argument("schema", metavar="SCHEMA", help="a draft, from dpvi schema draft")
    confirm.set_defaults(func=run_confirm)


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


def run_confirm(options: argparse.Namespace) -> int:
    """Take the marks away and let the schema be loaded."""
    from dpvi.cli.files import write_text
    from dpvi.table import Schema, confirmed_text

    path = Path(options.schema)
    text = confirmed_text(path.read_text(encoding="utf-8"))
    write_text(path, text)
    columns = Schema.load(path).columns
    print(f"{path} is confirmed, on your word that its {len(columns)} columns are public knowledge as they stand.")
    return 0


def run_check(options: argparse.Namespace) -> int:
    """Encode a table and refuse every value outside the schema."""
    from dpvi.table import Schema

    Schema.load(options.schema).encode(options.table, outside="raise")
    print("SENSITIVE (not private, do not share): every value lies within the schema.", file=sys.stderr)
    return 0
