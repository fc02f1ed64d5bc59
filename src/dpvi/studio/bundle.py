"""All of a run in one file: report, result, the settings that repeat it, the schema and a notebook."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from dpvi.cli.run_file import RunSettings, beside
from dpvi.studio.session import BUNDLE, REPORT, RESULT, Session

_ABOUT = """\
{title}

{guarantee}

report.html      the report, one page that needs no network
result.npz       everything that was released; dpvi summary result.npz, dpvi verify result.npz
result.run.toml  the settings, which repeat the run on a table: {command}
schema.toml      what was declared of the columns
notebook.ipynb   reads the result in Python; needs no records

None of these files holds a record.
"""


def settings_of(session: Session) -> RunSettings:
    """The settings of a run, as ``dpvi fit`` keeps them."""
    assert session.schema is not None
    return RunSettings(
        data=session.table,
        output=RESULT,
        epsilon=float(session.epsilon),
        delta=float(session.delta),
        schema=session.schema.to_dict(),
        formula=session.formula,
        family=session.family,
        unit=session.unit,
        rows_per_unit=session.rows_per_unit,
        ledger=session.ledger,
    )


def command_of(session: Session) -> str:
    """The command that repeats the run, from the files of the bundle."""
    return f"dpvi fit {beside(RESULT).name}"


def write_bundle(session: Session) -> Path:
    """Write the bundle of the last run."""
    if not session.answer:
        raise ValueError("There is no run yet; go back and run first.")
    assert session.schema is not None
    path = session.folder / BUNDLE
    name = beside(RESULT).name
    session.schema.save(session.folder / "schema.toml")
    about = _ABOUT.format(title=session.formula, guarantee=session.answer["guarantee"], command=command_of(session))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in (REPORT, RESULT, "schema.toml"):
            archive.write(session.folder / each, each)
        archive.writestr(name, settings_of(session).to_text(name))
        archive.writestr("notebook.ipynb", notebook(session))
        archive.writestr("README.txt", about)
    return path


def notebook(session: Session) -> str:
    """A notebook that reads the result."""
    cells = [
        ("markdown", f"# {session.formula}\n\n{session.answer['guarantee']}"),
        ("code", 'import dpvi.regression\n\nfitted = dpvi.regression.load("result.npz")\nprint(fitted.guarantee)'),
        ("code", "fitted.summary()"),
        ("code", "fitted.prior_summary()"),
        ("markdown", "Predictions for rows of your own, as a table with the predictors:"),
        ("code", f"fitted.predict({_one_row(session)!r})"),
    ]
    content = {
        "cells": [_cell(index, kind, text) for index, (kind, text) in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def _cell(index: int, kind: str, text: str) -> dict[str, object]:
    cell: dict[str, object] = {"id": f"cell-{index}", "cell_type": kind, "metadata": {}, "source": text}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def _one_row(session: Session) -> dict[str, list[object]]:
    """The middle of every declared column, as an example."""
    assert session.schema is not None
    row: dict[str, list[object]] = {}
    for name, column in session.schema.columns.items():
        entry = column.to_dict()
        if name == session.response:
            continue
        if "levels" in entry:
            row[name] = [entry["levels"][0]]
        elif entry["kind"] == "boolean":
            row[name] = [True]
        else:
            row[name] = [(entry.get("lower", 0) + entry["upper"]) / 2]
    return row
