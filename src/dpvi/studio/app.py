"""The studio's server: one page on the loopback address."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    from nicegui import app, ui
except ImportError:
    raise ImportError("The studio needs NiceGUI; install it with: pip install 'dpvi[studio]'") from None
from fastapi.responses import FileResponse, PlainTextResponse

from dpvi.studio.frame import STYLE, Wizard
from dpvi.studio.guard import Guard, loopback
from dpvi.studio.session import REPORT, Session
from dpvi.studio.steps.budget import NAME as BUDGET
from dpvi.studio.steps.budget import budget_step
from dpvi.studio.steps.columns import NAME as COLUMNS
from dpvi.studio.steps.columns import columns_step
from dpvi.studio.steps.question import NAME as QUESTION
from dpvi.studio.steps.question import question_step
from dpvi.studio.steps.report import NAME as REPORT_STEP
from dpvi.studio.steps.report import report_step
from dpvi.studio.steps.run import NAME as RUN
from dpvi.studio.steps.run import run_step
from dpvi.studio.steps.table import NAME as TABLE
from dpvi.studio.steps.table import table_step

# the web framework below can report on requests where a machine's settings say so; this one's are nobody's business
_SILENT = {"OTEL_SDK_DISABLED": "true", "FASTAPI_OTEL_AUTO_CONFIGURE": "false"}


def serve(host: str = "127.0.0.1", port: int = 0, *, browser: bool = True) -> None:
    """Serve the studio until somebody stops it.

    Parameters
    ----------
    host
        A loopback address; any other is refused.
    port
        0 takes a free one.
    browser
        Whether to open the page.

    Guarantees
    ----------
    The server listens on this machine alone, answers to the token alone that it prints, and contacts nothing. What was
    dropped lies in a folder that only its owner can read, and that is removed when the studio ends.
    """
    address = loopback(host)
    os.environ.update(_SILENT)
    logging.getLogger("nicegui").setLevel(logging.ERROR)  # below are remarks on its own speed
    port = port or _free_port(address)
    token = secrets.token_urlsafe(24)
    shown = f"[{address}]" if ":" in address else address
    url = f"http://{shown}:{port}/?token={token}"
    temporary = tempfile.TemporaryDirectory(prefix="dpvi-studio-", ignore_cleanup_errors=True)
    with temporary as folder, _uploads_in(folder):
        session = Session(Path(folder))
        pages(session)
        app.add_middleware(Guard, token=token)
        app.on_shutdown(session.jobs.stop)
        app.on_shutdown(lambda: shutil.rmtree(folder, ignore_errors=True))  # a signal ends the server for good
        _ended_by_hanging_up()
        print(f"The studio is at {url}\nIt answers on this machine alone. Stop it with Ctrl-C.", flush=True)
        if browser:
            app.on_startup(lambda: webbrowser.open(leading_to(url, Path(folder)).as_uri()))
        ui.run(
            host=address,
            port=port,
            title="dpvi studio",
            show=False,
            reload=False,
            dark=None,
            show_welcome_message=False,
            uvicorn_logging_level="critical",  # a tab that is closed amid an answer is no error
            language="en-US",
        )


def pages(session: Session) -> None:
    """The page of the wizard, and the report that it shows."""

    @ui.page("/")
    def wizard_page() -> None:
        ui.add_css(STYLE)
        ui.colors(primary="#1d5c63")
        with ui.column().classes("studio gap-0"):
            ui.html("<h1>From a table to a private report</h1>", sanitize=False)
            ui.label(
                "Fit a regression under differential privacy. Everything happens on this machine; what you download at "
                "the end may be published."
            ).classes("lead")
            wizard = Wizard(session)
            with ui.stepper().props("vertical header-nav=false animated=false").classes("w-full") as wizard.stepper:
                table_step(wizard, COLUMNS)
                columns_step(wizard, TABLE, QUESTION)
                question_step(wizard, COLUMNS, BUDGET)
                budget_step(wizard, QUESTION, RUN)
                run_step(wizard, BUDGET, REPORT_STEP)
                report_step(wizard, RUN)

    @app.get("/report")
    def report() -> Any:
        path = session.folder / REPORT
        if not session.answer:
            return PlainTextResponse("There is no report yet; run first.", status_code=404)
        return FileResponse(path, media_type="text/html")


def leading_to(url: str, folder: Path) -> Path:
    """A page that leads to ``url``: all users of a machine see with which arguments a browser was started.

    The token must not be among these, so it is given a file that its owner alone can read.
    """
    path = folder / "open.html"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={url}"><a href="{url}">dpvi studio</a>')
    return path


@contextmanager
def _uploads_in(folder: str) -> Iterator[None]:
    """The framework keeps uploads in the folder for temporary files until they are saved; no copy outlives ours."""
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        yield
    finally:
        tempfile.tempdir = before


def _ended_by_hanging_up() -> None:
    """A terminal that is closed ends the studio as any other signal does: without the table."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
