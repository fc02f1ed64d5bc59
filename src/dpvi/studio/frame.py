"""What all steps of the wizard share: the look of the page, a place for what went wrong, and the way on."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from dpvi.studio.jobs import JobError
from dpvi.studio.session import Session

_REFUSED = (ValueError, TypeError, OSError, JobError)
STYLE = """
:root { --studio-accent: #1d5c63; }
body { background: #f5f6f4; font-family: system-ui, sans-serif; }
.body--dark { background: #15191a; }
.studio { max-width: 62rem; margin: 0 auto; width: 100%; padding: 1.5rem 1rem 4rem; }
.studio h1 { font-size: 1.6rem; font-weight: 650; margin: 0; line-height: 1.3; }
.studio .lead { opacity: .75; margin: .25rem 0 1rem; max-width: 44rem; }
.studio .q-stepper { border-radius: .8rem; box-shadow: 0 1px 3px rgb(0 0 0 / .12); }
.studio .q-stepper__title { font-size: 1rem; }
.studio .note { opacity: .75; font-size: .92rem; max-width: 44rem; line-height: 1.5; }
.studio .problem { border-left: 4px solid #b3261e; background: rgb(179 38 30 / .09); padding: .7rem 1rem;
  border-radius: .4rem; }
.studio .promise { border-left: 4px solid var(--studio-accent); background: rgb(29 92 99 / .08); padding: .7rem 1rem;
  border-radius: .4rem; line-height: 1.5; }
.studio .declared { border-top: 1px solid rgb(128 128 128 / .25); padding: .5rem 0; }
.studio .declared-name { font-weight: 600; min-width: 10rem; overflow-wrap: anywhere; }
.studio .q-uploader__subtitle { display: none; }
.body--dark .studio .text-primary, .body--dark .studio .q-stepper__tab--active,
.body--dark .studio .q-stepper__tab--done, .body--dark .studio .q-chip { color: #7cc7cf !important; }
.studio pre { font-size: .85rem; overflow-x: auto; }
.studio iframe { width: 100%; height: 44rem; border: 1px solid rgb(128 128 128 / .35); border-radius: .5rem;
  background: #fff; }
"""


class Wizard:
    """The steps on one page."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.stepper: Any = None
        self._refreshers: dict[str, Callable[[], object]] = {}

    def on_arrival(self, step: str, refresh: Callable[[], object]) -> None:
        """Call ``refresh`` whenever ``step`` is come to, since earlier ones decide what it shows."""
        self._refreshers[step] = refresh

    def go(self, step: str) -> None:
        """Open a step."""
        if step in self._refreshers:
            self._refreshers[step]()
        self.stepper.set_value(step)


class Problem:
    """A place for one sentence about what has to be changed."""

    def __init__(self) -> None:
        self._label = ui.label("").classes("problem w-full").props('role="alert"')
        self._label.set_visibility(False)

    def say(self, sentence: str) -> None:
        """Show a sentence, or nothing for an empty one."""
        self._label.set_text(sentence)
        self._label.set_visibility(bool(sentence))


def guarded(problem: Problem, action: Callable[..., Awaitable[None] | None]) -> Callable[..., Awaitable[None]]:
    """``action``, of an event or of nothing, whose refusal is shown in the place of ``problem``."""
    wants_event = bool(inspect.signature(action).parameters)

    async def act(event: Any) -> None:
        problem.say("")
        try:
            done = action(event) if wants_event else action()
            if done is not None:
                await done
        except UnicodeDecodeError:
            problem.say("The table is not text in UTF-8; save it as CSV in UTF-8 and drop it again.")
        except _REFUSED as error:
            problem.say(" ".join(str(error).split()))

    return act


@contextmanager
def turning(button: Any) -> Iterator[None]:
    """A button that shows work going on."""
    button.props("loading")
    try:
        yield
    finally:
        button.props(remove="loading")


def way(
    wizard: Wizard, problem: Problem, on_next: Callable[..., Any] | None, back: str = "", label: str = "Continue"
) -> Any:
    """The buttons at the foot of a step; returns the one that leads on."""
    forward = None
    with ui.stepper_navigation().classes("w-full"):
        if on_next is not None:
            forward = ui.button(label, on_click=guarded(problem, on_next)).props("unelevated no-caps color=primary")
        if back:
            ui.button("Back", on_click=lambda: wizard.go(back)).props("flat no-caps")
    return forward
