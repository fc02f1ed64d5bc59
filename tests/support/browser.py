"""A real headless Chromium, driven over its own protocol: open, ask, click, type, drop a file, look."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from support.pages import CHROMIUM
from websockets.sync.client import connect

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-port=0"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,1000"),
)
_PATIENCE = 120.0  # seconds


class Browser:
    """One page. ``requests`` are the addresses that it asked for, ``complaints`` what its console said was wrong."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp()
        assert CHROMIUM is not None
        self._process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port_file = Path(self._profile) / "DevToolsActivePort"
        until(lambda: port_file.exists() and port_file.read_text().strip())
        port = port_file.read_text().split()[0]
        with urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            page = next(each for each in json.load(answer) if each["type"] == "page")
        self._open = ExitStack()
        self._socket = self._open.enter_context(connect(page["webSocketDebuggerUrl"], max_size=2**26))
        self._last = 0
        self.requests: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._process.terminate()
        self._process.wait(timeout=30)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol and its answer."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=_PATIENCE))
            if message.get("id") == self._last:
                assert "error" not in message, message["error"]
                return message["result"]
            self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:
        said = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif message.get("method") == "Network.webSocketCreated":
            self.requests.append(said["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.complaints.append(said["entry"]["text"])

    def open(self, url: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=url)

    def ask(self, script: str) -> Any:
        """What an expression says."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def text(self) -> str:
        """All text that is shown."""
        return str(self.ask("document.body ? document.body.innerText : ''"))

    def wait_for(self, words: str) -> None:
        """Wait until some words are shown."""
        until(lambda: words in self.text(), lambda: f"{words!r} is not in {self.text()!r}")

    def click(self, words: str) -> None:
        """Click what is shown with exactly these words: a button, an option, a checkbox."""
        named = f"e.innerText.replace(/^[a-z_]+\\n/, '').trim() === {json.dumps(words)}"
        self._press("button, .q-item, .q-checkbox, a", named, f"nothing to click says {words!r}")

    def choose(self, label: str, *options: str) -> None:
        """Open the list of a field and click options of it."""
        self._press(".q-select", _called(label), f"no list is called {label!r}")
        for each in options:
            self.click(each)
        self.key("Escape")

    def type(self, label: str, text: str) -> None:
        """Type into the field with this label, in place of what is there."""
        self._press(".q-field:not(.q-select)", _called(label), f"no field is called {label!r}")
        self.ask("document.activeElement.select()")
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.key("Delete")

    def key(self, name: str) -> None:
        """Press a key."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "Delete": 46}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=codes[name])

    def _press(self, selector: str, wanted: str, why: str) -> None:
        """Press the mouse on the last element e of ``selector`` that is seen, holds still, and is ``wanted``."""
        find = (
            f"(() => {{ const e = [...document.querySelectorAll({json.dumps(selector)})]"
            f".filter(e => e.offsetParent && ({wanted})).at(-1); if (!e) return null;"
            " e.scrollIntoView({block: 'center'});"
            " const r = e.getBoundingClientRect(); return [r.x + Math.min(r.width / 2, 40), r.y + r.height / 2]; })()"
        )
        places: list[Any] = [None]

        def still() -> bool:
            places.append(self.ask(find))
            return places[-1] is not None and places[-1] == places[-2]

        until(still, lambda: f"{why} in {self.text()!r}")
        x, y = places[-1]
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drop(self, path: Path, which: int = 0) -> None:
        """Give a file to one of the page's fields for files."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        found = self.call("DOM.querySelectorAll", nodeId=root, selector="input[type=file]")["nodeIds"]
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=found[which])

    def look(self, path: Path) -> None:
        """A picture of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def save_downloads(self, folder: Path) -> None:
        """Put what is downloaded into a folder."""
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))


def _called(label: str) -> str:
    """Whether the field e has this label, for eyes or for a screen reader."""
    return (
        f"[...e.querySelectorAll('[aria-label]')].some(f => f.getAttribute('aria-label') === {json.dumps(label)}) ||"
        f" e.querySelector('.q-field__label')?.innerText === {json.dumps(label)}"
    )


def until(found: Callable[[], Any], why: Callable[[], str] | None = None) -> None:
    """Ask again and again until something is so."""
    end = time.monotonic() + _PATIENCE
    while not found():
        if time.monotonic() > end:
            raise AssertionError(why() if why else "it never came to be")
        time.sleep(0.1)
