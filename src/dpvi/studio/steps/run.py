"""The fifth step: the promise, a last question, and the run."""

from __future__ import annotations

from nicegui import ui

from dpvi.studio.bundle import command_of
from dpvi.studio.frame import Problem, Wizard, turning, way
from dpvi.studio.steps.columns import declared

NAME = "Run"


def run_step(wizard: Wizard, before: str, after: str) -> None:
    """Say what will be promised, and spend the budget once somebody agrees."""
    session = wizard.session
    with ui.step(NAME, icon="play_circle"):
        problem = Problem()
        said = ui.column().classes("w-full gap-2")
        agreed = ui.checkbox("The bounds and levels are public knowledge, and I may spend this budget on these people.")
        with ui.row().classes("w-full items-center no-wrap gap-4") as going:
            bar = ui.linear_progress(value=0, show_value=False).props("rounded size=14px").classes("col")
            percent = ui.label("").classes("w-24")
            ui.button("Stop", on_click=session.jobs.stop).props("flat no-caps color=negative")
        going.set_visibility(False)

        def show() -> None:
            said.clear()
            with said:
                assert session.schema is not None
                ui.label(session.formula).classes("text-weight-medium")
                ui.label("; ".join(declared(session.schema))).classes("note")
                ui.label(session.checked.get("guarantee", "")).classes("promise")

        def told(share: float) -> None:
            bar.set_value(share)
            percent.set_text(f"{100 * share:.0f} %" if share < 1 else "writing")

        async def spend() -> None:
            if not agreed.value:
                raise ValueError("Tick the box first: a run spends its budget, and nothing takes that back.")
            session.forget_run()
            told(0.0)
            percent.set_text("compiling")
            title = f"{session.response} in {session.table}"
            job = {**session.job(), "title": title, "command": command_of(session)}
            going.set_visibility(True)
            try:
                with turning(button):
                    session.answer = await session.jobs.run("fit", job, told)
            finally:
                going.set_visibility(False)
            agreed.set_value(False)
            wizard.go(after)

        wizard.on_arrival(NAME, show)
        button = way(wizard, problem, spend, before, "Run and spend the budget")
