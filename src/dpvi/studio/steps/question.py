"""The third step: what is to be explained by what."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from dpvi.studio.frame import Problem, Wizard, turning, way
from dpvi.studio.question import FAMILIES, families_for, formula_of

NAME = "Question"


def question_step(wizard: Wizard, before: str, after: str) -> None:
    """Response, predictors and the kind of regression; experts edit the formula."""
    session = wizard.session
    with ui.step(NAME, icon="help_outline"):
        ui.label(
            "Which column is to be explained, and by which others? The estimates say how the response changes with "
            "each predictor while the others stay as they are."
        ).classes("note")
        problem = Problem()
        form = ui.column().classes("w-full gap-3")

        def show() -> None:
            form.clear()
            assert session.schema is not None
            names = list(session.schema.columns)
            session.response = session.response if session.response in names else ""
            session.predictors = [each for each in session.predictors if each in names]
            with form:
                _fields(session, names, problem)

        async def forward() -> None:
            if not session.response or not session.predictors or not session.family:
                raise ValueError("Choose a response, at least one predictor, and a family.")
            with turning(button):
                session.answer = {}
                session.checked = await session.jobs.run("check", session.job())
            wizard.go(after)

        wizard.on_arrival(NAME, show)
        button = way(wizard, problem, forward, before)


def _fields(session: Any, names: list[str], problem: Problem) -> None:
    def rebuilt() -> None:
        problem.say("")
        choices = families_for(session.schema, session.response) if session.response else []
        if session.response and not choices:
            problem.say(
                f"{session.response} has several unordered levels, for which there is no family; choose another."
            )
        family.set_options({each: FAMILIES[each] for each in choices}, value=_kept(session.family, choices))
        session.predictors = [each for each in session.predictors if each != session.response]
        predictors.set_options([each for each in names if each != session.response], value=session.predictors)
        if session.response and session.predictors:
            formula.set_value(formula_of(session.schema, session.response, session.predictors))

    options = {
        each: FAMILIES[each] for each in (families_for(session.schema, session.response) if session.response else [])
    }
    with ui.row().classes("w-full gap-4"):
        response = ui.select(names, label="Response", value=session.response or None).classes("w-64")
        response.bind_value_to(session, "response", lambda value: value or "")
        rest = [each for each in names if each != session.response]
        predictors = ui.select(rest, label="Predictors", value=session.predictors, multiple=True).props("use-chips")
        predictors.classes("w-96").bind_value_to(session, "predictors", lambda value: list(value or []))
    family = ui.select(options, label="Family", value=_kept(session.family, list(options))).classes("w-96")
    family.bind_value_to(session, "family", lambda value: value or "")
    formula = ui.input("Formula", value=session.formula).classes("w-full").props('spellcheck="false"')
    formula.bind_value_to(session, "formula")
    ui.label(
        "Experts edit the formula: a * b, poly(age, 2), bs(age, df=5), I(age ** 2), (1 | clinic), offset(log(days))."
    ).classes("note")
    for each in (response, predictors, family, formula):
        each.props("outlined")
    response.on_value_change(rebuilt)
    predictors.on_value_change(rebuilt)


def _kept(value: str, choices: list[str]) -> str | None:
    return value if value in choices else (choices[0] if choices else None)
