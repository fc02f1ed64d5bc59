"""``dpvi synth``: synthetic tables from a result, and a page about them."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpvi.cli.parser import add_command, add_json
from dpvi.cli.reading import add_result, read_result, told

if TYPE_CHECKING:
    from dpvi.cli.reading import Reading
    from dpvi.synthetic import SyntheticData

PAGE = "index.html"


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "synth",
        help="draw synthetic tables from a result, with a page about them",
        description="Draw synthetic tables, each with parameters of its own from the posterior, into a new folder with "
        "the schema and a page that shows columns, how they go together, and what the model cannot express. Drawing "
        "tables costs no privacy.",
        example="dpvi synth table.npz --number 10 --records 30000 --output synthetic",
    )
    add_result(parser)
    parser.add_argument("--number", type=int, default=10, help="of tables (default: 10)")
    parser.add_argument("--records", type=int, help="in each table, a public number (default: as far as released)")
    parser.add_argument("--output", metavar="FOLDER", default="synthetic", help="a new folder (default: synthetic)")
    parser.add_argument("--format", default="csv", choices=("csv", "parquet"), help="of the tables (default: csv)")
    parser.add_argument("--seed", type=int, help="the same tables every time (default: other ones)")
    add_json(parser)
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Read the result, draw, write."""
    from dpvi.cli.files import check_writable, write_text
    from dpvi.reporting.page.synthetic import MIXTURE_LIMITS, REGRESSION_LIMITS, synthetic_page

    folder = Path(options.output)
    if folder.exists():
        raise FileExistsError(f"{folder} is there already; name a new folder, so that no tables are mixed.")
    if options.number < 1:
        raise ValueError(f"--number must be at least 1, got {options.number}.")
    if options.records is not None and options.records < 1:
        raise ValueError(f"--records must be at least 1, got {options.records}.")
    check_writable(folder)
    reading = read_result(options)
    with told():
        regression = reading.regression
        posterior = reading.result.posterior() if regression is None else regression.posterior
        data, released = _drawn(reading, posterior, options)
        limits = MIXTURE_LIMITS if regression is None else REGRESSION_LIMITS
        page = synthetic_page(data, released=released, limits=(*posterior.notes, *limits))
    data.save(folder, options.format)
    write_text(folder / PAGE, page)
    if options.json:
        told_of = {"folder": os.fspath(folder), "tables": len(data), "records": data.num_records}
        print(json.dumps({**told_of, "guarantee": str(data.guarantee)}, indent=2, ensure_ascii=False))
        return 0
    print(f"{len(data)} tables of {data.num_records:,} records are in {folder}; {folder / PAGE} is a page about them.")
    print(data.guarantee.warning or "They may be published. Analyse all of them and pool: dpvi.synthetic.pool.")
    return 0


def _drawn(reading: Reading, posterior: Any, options: argparse.Namespace) -> tuple[SyntheticData, Any]:
    import jax

    from dpvi.posterior.predictors import released_size
    from dpvi.synthetic import synthesize

    records = options.records if options.records is not None else released_size(reading.result)
    key = None if options.seed is None else jax.random.key(options.seed)
    settings: dict[str, Any] = {"num_records": records, "num_datasets": options.number, "key": key}
    if reading.regression is not None:
        from dpvi.regression.synthetic import released_of, synthesize_regression

        return synthesize_regression(reading.regression, **settings), released_of(reading.regression)
    if reading.settings is None or reading.result.model is None:
        raise ValueError(
            f"Tables are drawn with the model and the schema of a run, and {reading.path} has no run file beside it "
            "that says so; keep the .run.toml that dpvi fit wrote, or use dpvi.synthesize from Python."
        )
    model = reading.result.model
    function = getattr(model, "function", model)
    drawing = function if hasattr(function, "draw_records") else model
    return synthesize(posterior, drawing, reading.settings.declared, **settings), None
