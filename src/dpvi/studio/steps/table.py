"""The first step: a CSV file, of which the first line is read."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from dpvi.studio.declarations import Declared
from dpvi.studio.frame import Problem, Wizard, guarded, way
from dpvi.studio.header import header_of
from dpvi.studio.session import Session

NAME = "Table"


async def _take(session: Session, file: Any) -> None:
    """Keep a file whose first line is a header, in place of the one before."""
    arriving = session.folder / "arriving.csv"
    await file.save(arriving)
    try:
        names = header_of(arriving, file.name)
    except ValueError:
        arriving.unlink()
        raise
    arriving.replace(session.path)
    session.table, session.schema = file.name, None
    session.rows = [Declared(each) for each in names]
    session.forget_run()


def table_step(wizard: Wizard, after: str) -> None:
    """Take the file, and show the names of its columns."""
    session = wizard.session
    with ui.step(NAME, icon="table_chart"):
        ui.label(
            "Drop a CSV file with one record per line and names in the first line. Only that first line is read now; "
            "the records are not looked at until you run. The file stays on this machine."
        ).classes("note")
        problem = Problem()

        async def taken(event: Any) -> None:
            upload.reset()
            await _take(session, event.file)
            show()

        upload = ui.upload(label="Drop a CSV file here, or choose one with +", auto_upload=True, max_files=1)
        upload.on_upload(guarded(problem, taken))
        upload.on_rejected(lambda: problem.say("That is no CSV file; save the table as CSV and drop it again."))
        upload.props('accept=".csv,text/csv" flat bordered color=primary').classes("w-full")
        found = ui.column().classes("w-full gap-1")

        def show() -> None:
            found.clear()
            if not session.table:
                return
            with found:
                ui.label(f"{session.table}: {len(session.rows)} columns").classes("text-weight-medium q-mt-sm")
                with ui.row().classes("gap-1"):
                    for row in session.rows:
                        ui.chip(row.name, color="primary").props("outline square dense")

        def forward() -> None:
            if not session.table:
                raise ValueError("Drop a CSV file first.")
            wizard.go(after)

        show()
        way(wizard, problem, forward)
