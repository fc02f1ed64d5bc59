"""The second step: what is publicly known of every column, as the custodian declares it."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from dpvi.studio.declarations import KINDS, UNUSED, Declared, rows_from, schema_of
from dpvi.studio.frame import Problem, Wizard, guarded, way
from dpvi.table import Schema

NAME = "Columns"


def columns_step(wizard: Wizard, before: str, after: str) -> None:
    """A line of the form for every column."""
    session = wizard.session
    with ui.step(NAME, icon="rule"):
        ui.label(
            "Say what is publicly known of the columns that you need. Bounds and levels come from the questionnaire, "
            "the code book or the law, never from the records: the smallest and largest value are somebody's. Values "
            "beyond the bounds count as the bound."
        ).classes("note")
        problem = Problem()

        @ui.refreshable
        def form() -> None:
            for row in session.rows:
                _line(row)

        async def filled(event: Any) -> None:
            schema.reset()
            path = session.folder / "given.toml"
            await event.file.save(path)
            rows_from(path, session.rows)
            form.refresh()

        form()
        with ui.expansion("Use a schema that was saved before (schema.toml)", icon="upload_file").classes("w-full"):
            schema = ui.upload(label="Drop a schema", auto_upload=True, on_upload=guarded(problem, filled))
            schema.props('accept=".toml" flat bordered color=primary').classes("w-full")

        def forward() -> None:
            session.schema = schema_of(session.rows)
            session.forget_run()
            wizard.go(after)

        wizard.on_arrival(NAME, lambda: form.refresh())
        way(wizard, problem, forward, before)


def _line(row: Declared) -> None:
    @ui.refreshable
    def fields() -> None:
        with ui.row().classes("items-center gap-3 col"):
            if row.kind == "numeric":
                _text(row, "lower", "smallest value").classes("w-32")
            if row.kind in ("numeric", "count"):
                _text(row, "upper", "largest value" if row.kind == "numeric" else "largest count").classes("w-32")
            if row.kind in ("categorical", "ordinal"):
                hint = "levels in rising order" if row.kind == "ordinal" else "levels"
                _text(row, "levels", f"{hint}, separated by commas").classes("w-80")
                _text(row, "other", "others count as").classes("w-40")
            if row.kind != UNUSED:
                ui.checkbox("may be missing").bind_value(row, "missing")

    with ui.row().classes("declared w-full items-center no-wrap gap-4"):
        ui.label(row.name).classes("declared-name")
        kind = ui.select(KINDS, label="kind", on_change=lambda: fields.refresh()).bind_value(row, "kind")
        kind.classes("w-44").props(f'dense outlined aria-label="kind of {_plain(row.name)}"')
        fields()


def _text(row: Declared, entry: str, label: str) -> Any:
    made = ui.input(label).bind_value(row, entry)
    return made.props(f'dense outlined aria-label="{_plain(label)} of {_plain(row.name)}"')


def _plain(text: str) -> str:
    """Without what would end an attribute."""
    return "".join(each for each in text if each not in "\"'\\<>")


def declared(schema: Schema) -> list[str]:
    """One phrase per column of a schema, for a summary."""
    return [f"{name}: {KINDS[column.to_dict()['kind']].lower()}" for name, column in schema.columns.items()]
