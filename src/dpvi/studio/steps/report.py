"""The last step: the report, and everything in one file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from nicegui import ui

from dpvi.studio.bundle import write_bundle
from dpvi.studio.frame import Problem, Wizard, guarded, way
from dpvi.studio.session import BUNDLE, REPORT, RESULT

NAME = "Report"


def report_step(wizard: Wizard, before: str) -> None:
    """Read it, take it home."""
    session = wizard.session
    with ui.step(NAME, icon="description"):
        problem = Problem()
        page = ui.column().classes("w-full gap-3")

        def bundled() -> None:
            ui.download.file(write_bundle(session), BUNDLE)

        def show() -> None:
            page.clear()
            with page:
                ui.label("The report, the result and all that repeats the run hold no record.").classes("note")
                for each in session.answer.get("warnings", ()):
                    ui.label(each).classes("promise")
                with ui.row().classes("gap-3"):
                    bundle = ui.button("Download everything", icon="archive", on_click=guarded(problem, bundled))
                    bundle.props("unelevated no-caps color=primary")
                    for name, label in ((REPORT, "Report"), (RESULT, "Result")):
                        ui.button(label, icon="download", on_click=_taking(session.folder / name)).props(
                            "outline no-caps"
                        )
                    ui.link("Open the report on a page of its own", "/report", new_tab=True).classes("self-center")
                ui.element("iframe").props(f'src="/report?{time.time_ns()}" title="Report"')

        wizard.on_arrival(NAME, show)
        way(wizard, problem, None, before)


def _taking(path: Path) -> Callable[[], None]:
    return lambda: ui.download.file(path, path.name)
