"""The fourth step: how much privacy is spent, and how wide intervals will be for it."""

from __future__ import annotations

import math
from typing import Any

from nicegui import ui

from dpvi.studio.frame import Problem, Wizard, guarded, turning, way

NAME = "Budget"
_GRID = (0.3, 1.0, 3.0)


def budget_step(wizard: Wizard, before: str, after: str) -> None:
    """ε and δ, who is protected, and a preview from simulated records."""
    session = wizard.session
    with ui.step(NAME, icon="savings"):
        ui.label(
            "Epsilon bounds what anybody can learn about one person from the report: at 1, any conclusion becomes at "
            "most 2.7 times more or less likely because of that person. Smaller protects more, and intervals are wider."
        ).classes("note")
        problem = Problem()
        _fields(session)
        ui.separator()
        _preview(session, problem)

        async def forward() -> None:
            checked_budget(session)
            with turning(on):
                session.checked = await session.jobs.run("check", session.job())
            wizard.go(after)

        on = way(wizard, problem, forward, before)


def _fields(session: Any) -> None:
    with ui.row().classes("w-full items-center gap-4"):
        _number(session, "epsilon", "Epsilon", "w-32")
        _number(session, "delta", "Delta", "w-32").tooltip("Choose it well below one over the number of people.")
        ui.input("Who is protected").bind_value(session, "unit").props("outlined").classes("w-48")
        _number(session, "rows_per_unit", "Most rows of one", "w-40").tooltip("1 where everybody has one row.")
    with ui.expansion("Charge a ledger, which adds up all that is released of this table", icon="receipt_long"):
        box = ui.input("Path of the ledger, made with dpvi ledger create").bind_value(session, "ledger")
        box.props("outlined").classes("w-96")


def _preview(session: Any, problem: Problem) -> None:
    ui.label("Before anything is spent").classes("text-weight-medium")
    ui.label(
        "How wide will 95 % intervals be? The preview simulates records from your declarations: columns that know "
        "nothing of each other and have no effect. No record is read."
    ).classes("note")
    with ui.row().classes("items-center gap-4"):
        count = _number(session, "num_records", "Records, roughly", "w-40")
        count.tooltip("What is publicly known of their number.")
        button = ui.button("Show expected widths").props("outline no-caps color=primary")
    picture = ui.column().classes("w-full")

    async def previewed() -> None:
        checked_budget(session)
        grid = sorted({*_GRID, session.epsilon})
        job = {**session.job(), "epsilons": grid, "num_records": int(session.num_records)}
        picture.clear()
        with picture:
            ui.label("Simulating: this takes a minute or two.").classes("note")
        try:
            with turning(button):
                found = await session.jobs.run("preview", job)
        finally:
            picture.clear()
        with picture:
            _chart(grid, found)

    button.on_click(guarded(problem, previewed))


def checked_budget(session: Any) -> None:
    """Refuse numbers that are none, and keep whole ones whole."""
    for name, label in (("epsilon", "Epsilon"), ("delta", "Delta"), ("num_records", "The number of records")):
        value = getattr(session, name)
        if value is None or not math.isfinite(value) or value <= 0:
            raise ValueError(f"{label} must be a number above zero.")
    if session.delta >= 0.5:
        raise ValueError(
            "Delta is the probability that the promise fails; choose one well below 1 in the number of people."
        )
    rows = session.rows_per_unit
    if rows is None or rows != int(rows) or rows < 1:
        raise ValueError("The most rows of one person must be a whole number, 1 or more.")
    session.rows_per_unit = int(rows)
    if not session.unit.strip():
        raise ValueError("Say who is protected, such as: one patient.")


def _number(session: Any, entry: str, label: str, width: str) -> Any:
    return ui.number(label).bind_value(session, entry).props("outlined").classes(width)


def _chart(grid: list[float], found: dict[str, Any]) -> None:
    """Width by ε: a line per coefficient, and a table with the same numbers for those who cannot see it."""
    lines = [
        {
            "name": name,
            "type": "line",
            "symbolSize": 8,
            "data": [[each, row[index]] for each, row in zip(grid, found["width"], strict=True)],
        }
        for index, name in enumerate(found["names"])
    ]
    axis = {"nameLocation": "middle", "nameGap": 28}
    ui.echart(
        {
            "animation": False,
            "backgroundColor": "#ffffff",  # its texts are dark, whatever the page is
            "tooltip": {"trigger": "axis"},
            "legend": {"type": "scroll", "top": 0},
            "grid": {"left": 60, "right": 20, "top": 40, "bottom": 50},
            "xAxis": {"type": "log", "name": "epsilon", **axis},
            "yAxis": {"type": "log", "name": "expected width", **axis, "nameGap": 44},
            "series": lines,
        }
    ).classes("w-full h-80").props('aria-label="Expected width of intervals by epsilon"')
    columns = [{"name": "name", "label": "Coefficient", "field": "name", "align": "left"}]
    columns += [{"name": f"e{at}", "label": f"ε = {each:g}", "field": f"e{at}"} for at, each in enumerate(grid)]
    columns.append({"name": "without", "label": "without privacy", "field": "without"})
    rows = [
        {
            "name": name,
            **{f"e{at}": f"{row[index]:.3g}" for at, row in enumerate(found["width"])},
            "without": f"{found['without'][index]:.3g}",
        }
        for index, name in enumerate(found["names"])
    ]
    ui.table(columns=columns, rows=rows, row_key="name").props("dense flat").classes("w-full")
