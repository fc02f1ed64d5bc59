"""``dpvi fit``: from a table, its schema and a budget to a result that may be published."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpvi.cli.parser import add_command, add_json
from dpvi.declared.guarantee import SECRET_SEED

if TYPE_CHECKING:
    from dpvi.cli.run_file import RunSettings

_EXAMPLE = """\
dpvi fit adult.csv --schema schema.toml --formula "income ~ age + hours" --epsilon 1 --delta 1e-6
dpvi fit adult.csv --schema schema.toml --model table --epsilon 1 --delta 1e-6 --output table.npz
dpvi fit result.run.toml --output again.npz"""
_OPTIONS = (
    *("formula", "family", "trials", "model", "response", "components", "sampling_rate", "num_steps", "clip_norm"),
    *("num_records", "unit", "rows_per_unit", "ledger", "seed", "epsilon", "delta", "output"),
)
_MOST_ROWS = 40


def add_parser(subparsers: Any) -> None:
    """Declare the command and its arguments."""
    parser = add_command(
        subparsers,
        "fit",
        help="fit a formula, a table model or a NumPyro model to a table",
        description="Fit a model to the records of a table under a privacy budget. The result and the settings that "
        "repeat the run are written side by side.",
        example=_EXAMPLE,
    )
    add = parser.add_argument
    add("table", metavar="TABLE", help="a .csv or .parquet file, or the .run.toml of an earlier run")
    add("--schema", metavar="FILE", help="its columns with public bounds and levels, see dpvi schema draft")
    add("--formula", help="such as 'recid ~ age + C(charge)'")
    add(
        "--family",
        help="of the response: bernoulli, gaussian, student_t, poisson, binomial, negative_binomial, gamma, ...",
    )
    add("--trials", metavar="COLUMN", help="of family binomial: the column with the number of trials")
    add("--model", help="instead of a formula: table (a mixture over all columns), or FILE.py:NAME, a NumPyro function")
    add("--response", help="of a table model: a column to model by a regression on the others")
    add("--components", type=int, help="of a table model: number of clusters (default: 16)")
    add("--epsilon", type=float, help="privacy budget, such as 1")
    add("--delta", type=float, help="probability that it may fail, such as 1e-6")
    add("--sampling-rate", type=float, help="of a record in a step; without it and the next two, models of one's own")
    add("--num-steps", type=int, help="and formulas take no steps but measure, and table models take 4,000")
    add("--clip-norm", type=float, help="bound on what one record contributes to a step")
    add("--num-records", type=int, help="number of records, only where it is public")
    add("--unit", help="who is protected, such as 'one patient'")
    add("--rows-per-unit", type=int, help="the most rows that one unit has in the table (default: 1)")
    add("--ledger", metavar="FILE", help="charge the run to this ledger, see dpvi ledger create")
    add("--output", metavar="FILE", help="where the result goes (default: result.npz); it must not exist")
    add("--seed", type=int, help="repeatable run, NOT PRIVATE (default: entropy of the system)")
    add("--quiet", action="store_true", help="show no progress")
    add_json(parser)
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Fit, write the result and the settings of the run, print a summary."""
    from dpvi.cli.files import new_file, save_paid, write_text
    from dpvi.cli.run_file import beside

    settings = _settings(options)
    output = new_file(settings.output)
    notes = new_file(beside(output))
    result, summary = _fitted(settings, progress=not options.quiet)
    save_paid(result.save, output)
    write_text(notes, settings.to_text(notes.name))
    if options.json:
        print(json.dumps(_told(result, settings, str(notes), summary), indent=2, ensure_ascii=False))
        return 0
    print(result.guarantee, _shown(summary), sep="\n\n")
    verdict = result.guarantee.warning or "It may be published."
    print(f"\nThe result is in {output}. {verdict} Its settings are in {notes}.")
    print(f"Next: dpvi report {output}")
    return 0


def _shown(summary: Any) -> str:
    """A summary, or where it is long what it says below its table."""
    if len(summary.names) <= _MOST_ROWS:
        return str(summary)
    rest = getattr(summary, "caveat", "")
    return f"{len(summary.names)} parameters, which dpvi summary prints.{f' {rest}' if rest else ''}"


def _told(result: Any, settings: RunSettings, notes: str, summary: Any) -> dict[str, Any]:
    return {
        "result": settings.output,
        "settings": notes,
        "private": result.guarantee.private,
        "epsilon": result.guarantee.epsilon if result.guarantee.private else None,
        "delta": result.guarantee.delta if result.guarantee.private else None,
        "guarantee": str(result.guarantee),
        "estimates": summary.to_dict(),
    }


def _settings(options: argparse.Namespace) -> RunSettings:
    """From the command line, or from the file of an earlier run with what the command line changes."""
    from dpvi.cli.run_file import RunSettings, read_run_file
    from dpvi.table import Schema

    given = {name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None}
    if not 0 <= given.get("seed", 0) < SECRET_SEED:
        raise ValueError(
            "--seed takes a number from 0 to 2^128 - 1, for runs that are not private: a secret one would be in the "
            "history of the shell. Leave it out for real records."
        )
    if options.table.endswith(".toml"):
        settings = replace(read_run_file(Path(options.table)), **given)
        return settings if not options.schema else replace(settings, schema=Schema.load(options.schema).to_dict())
    if not options.schema:
        raise ValueError(
            "--schema is missing: bounds and levels must not come from the records; see dpvi schema draft."
        )
    lacking = [f"--{name}" for name in ("epsilon", "delta") if name not in given]
    if lacking:
        raise ValueError(f"{' and '.join(lacking)} must be given, such as --epsilon 1 --delta 1e-6.")
    settings = RunSettings(
        data=options.table, schema=Schema.load(options.schema).to_dict(), **{"output": "result.npz", **given}
    )
    if bool(settings.formula) == bool(settings.model):
        raise ValueError("Give either --formula 'y ~ x' or --model (table, or FILE.py:NAME).")
    return settings


def _fitted(settings: RunSettings, progress: bool) -> tuple[Any, Any]:
    """The result and its summary."""
    import dpvi
    from dpvi.cli.models import prepared
    from dpvi.cli.reading import told

    if not Path(settings.data).is_file():
        raise FileNotFoundError(f"There is no file {settings.data}; give the path of a .csv or .parquet table.")
    ledger = dpvi.Ledger(settings.ledger) if settings.ledger else None
    common: dict[str, Any] = {
        "ledger": ledger, "progress": progress, "seed": settings.seed if settings.seed >= 0 else None
    }  # fmt: skip
    with told():
        if settings.formula:
            from dpvi.cli.formulas import fitted_formula

            regression = fitted_formula(settings, common)
            return regression.result, regression.summary()
        ready = prepared(settings)
        result = dpvi.fit(ready.model, ready.data, ready.plan, initial_location=ready.start, **common)
        return result, result.posterior().summary()
