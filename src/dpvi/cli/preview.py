"""``dpvi preview``: how wide intervals will be, before a record is read and anything is spent."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpvi.cli.parser import add_command, add_json

if TYPE_CHECKING:
    from dpvi.regression.preview import Preview

_PICTURES = (".png", ".pdf", ".svg")


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "preview",
        help="see how wide intervals will be, before anything is spent",
        description="Simulate records from declarations alone, fit them, and print how wide the interval of every "
        "coefficient is to be expected, by budget and by number of records, beside the one without privacy. No record "
        "is read, so a committee can choose epsilon from it.",
        example='dpvi preview --schema schema.toml --formula "ill ~ age" --epsilon 1 3 --records 6000 --delta 1e-6',
    )
    add = parser.add_argument
    add("--schema", metavar="FILE", required=True, help="columns with public bounds and levels")
    add("--formula", required=True, help="such as 'recid ~ age + C(charge)'")
    add("--family", help="of the response (default: as its declaration suggests)")
    add("--trials", metavar="COLUMN", help="of family binomial: the column with the number of trials")
    add("--epsilon", type=float, nargs="+", default=[0.3, 1.0, 3.0], help="budgets (default: 0.3 1 3)")
    add("--delta", type=float, required=True, help="probability that a budget may fail, such as 1e-6")
    add("--records", type=int, nargs="+", required=True, help="numbers of records that you think of")
    add("--repeats", type=int, default=1, help="simulated runs of each kind, of which the mean is taken (default: 1)")
    add("--output", metavar="FILE", help="a picture, too: .png, .pdf or .svg")
    add_json(parser)
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Simulate, print, draw."""
    from dpvi.cli.files import check_writable
    from dpvi.cli.formulas import usual_family
    from dpvi.cli.reading import told
    from dpvi.regression.preview import preview
    from dpvi.reporting.plots import check_drawing
    from dpvi.table import Schema

    picture = None if options.output is None else Path(options.output)
    if picture is not None:
        if picture.suffix not in _PICTURES:
            raise ValueError(f"A picture is one of {', '.join(_PICTURES)}, got {picture.name!r}.")
        check_writable(picture)
        check_drawing()
    schema = Schema.load(options.schema)
    family = options.family or usual_family(options.formula, schema)
    settings = {"delta": options.delta, "trials": options.trials, "repeats": options.repeats}
    with told():
        found = preview(
            options.formula, schema, family=family, num_records=options.records, epsilon=options.epsilon, **settings
        )
    if picture is not None:
        _draw(found, picture)
    print(json.dumps(_told(found), indent=2, ensure_ascii=False) if options.json else found)
    return 0


def _draw(found: Preview, path: Path) -> None:
    from dpvi.table.writing import whole_or_nothing

    figure = found.plot()
    with whole_or_nothing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=150)


def _told(found: Preview) -> dict[str, Any]:
    cells = [
        {
            "epsilon": epsilon,
            "records": size,
            "width": dict(zip(found.names, found.width[row, column].tolist(), strict=True)),
        }
        for row, epsilon in enumerate(found.epsilon)
        for column, size in enumerate(found.num_records)
    ]
    plain = [
        {"records": size, "width": dict(zip(found.names, found.nonprivate[column].tolist(), strict=True))}
        for column, size in enumerate(found.num_records)
    ]
    return {"formula": found.formula, "probability": found.probability, "private": cells, "without_privacy": plain}
