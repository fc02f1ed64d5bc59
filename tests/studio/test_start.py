"""How the studio opens a browser and where it keeps what is dropped: other users of the machine learn nothing."""

from __future__ import annotations

import stat
import tempfile
import threading
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from support.browser import Browser
from support.pages import needs_chromium

pytest.importorskip("nicegui")

import uvicorn

from dpvi.studio import app as studio
from dpvi.studio.guard import Guard

TOKEN = "a-token-of-this-start"


def test_the_token_is_no_argument_of_the_browser_and_uploads_stay_in_the_own_folder(monkeypatch, capsys):
    application, opened, kept = MagicMock(), [], []

    def run(**_):
        for call in application.on_startup.call_args_list:
            call.args[0]()
        kept.append(tempfile.gettempdir())

    before = tempfile.gettempdir()
    monkeypatch.setattr(studio, "app", application)
    monkeypatch.setattr(studio, "pages", lambda session: None)
    monkeypatch.setattr(studio.ui, "run", run)
    monkeypatch.setattr(studio.webbrowser, "open", lambda url: opened.append((url, Path(url[7:]).stat())))
    studio.serve(browser=True)
    token = capsys.readouterr().out.split("token=")[1].split()[0]
    (url, status), (folder,) = opened[0], kept
    assert url.startswith("file://")
    assert token not in url
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert Path(url[7:]).parent == Path(folder)
    assert not Path(folder).exists()  # it went with the studio
    assert tempfile.gettempdir() == before


async def inside(scope, receive, send):
    if scope["type"] == "http":
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"inside"})


@needs_chromium
def test_a_browser_comes_in_by_the_file(tmp_path):
    port = studio._free_port("127.0.0.1")
    config = uvicorn.Config(Guard(inside, TOKEN), "127.0.0.1", port, lifespan="off", log_level="critical", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        page = studio.leading_to(f"http://127.0.0.1:{port}/?token={TOKEN}", tmp_path)
        with Browser() as browser:
            browser.open(page.as_uri())
            browser.wait_for("inside")
            assert TOKEN not in browser.ask("location.href")
    finally:
        server.should_exit = True
        thread.join()
