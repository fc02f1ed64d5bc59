"""Who may talk to the studio: a browser on this machine that was given the token of this start."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

_COOKIE = "dpvi_studio"
_WELCOME = (
    b'<!DOCTYPE html><meta charset="utf-8"><title>dpvi studio</title><meta http-equiv="refresh" content="0; url=/">'
)
_REFUSED = b"This studio belongs to whoever started it. Open the address that dpvi studio printed, token included."

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def loopback(host: str) -> str:
    """``host`` where it names this machine's loopback address; any other is refused.

    Examples
    --------
    >>> loopback("localhost"), loopback("127.0.0.1")
    ('127.0.0.1', '127.0.0.1')
    """
    address = "127.0.0.1" if host == "localhost" else host
    try:
        inside = ipaddress.ip_address(address).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise ValueError(
            f"The studio handles records, so it listens on this machine alone: use --host 127.0.0.1, got {host!r}. "
            "From elsewhere, forward a port: ssh -L 8765:127.0.0.1:8765 machine."
        )
    return address


def checked_port(port: int) -> int:
    """``port`` where a program may listen there without special rights; 0 stands for any free one."""
    if port == 0 or 1024 <= port <= 65535:
        return port
    raise ValueError(f"--port must lie between 1024 and 65535, got {port}; leave it out to take a free one.")


class Guard:
    """ASGI middleware: only requests to a loopback name, with the token in a cookie, go through.

    The address that is printed carries the token once; the answer moves it into a cookie. Names other than loopback
    ones are refused, because another site's name can be made to point at this machine.
    """

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, turn it away, or trade its token for a cookie."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif not self._named_here(scope):
            await _refuse(scope, send)
        elif self._same(_cookie(scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and self._same(_asked(scope)):
            await _welcome(send, self._token)
        else:
            await _refuse(scope, send)

    def _same(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())

    def _named_here(self, scope: Scope) -> bool:
        name = _header(scope, b"host").rpartition(":")[0] or _header(scope, b"host")
        origin = _header(scope, b"origin")  # "null" is that of a page which hides where it is from
        here = ("", f"http://{_header(scope, b'host')}")
        return name in ("127.0.0.1", "localhost", "[::1]") and origin in here


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _cookie(scope: Scope) -> str:
    try:
        cookies = SimpleCookie(_header(scope, b"cookie"))
    except CookieError:
        return ""
    return cookies[_COOKIE].value if _COOKIE in cookies else ""


def _asked(scope: Scope) -> str:
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]


async def _welcome(send: Send, token: str) -> None:
    """Leave the cookie, and go on by a page: a browser keeps a strict cookie back from a redirect out of a file."""
    cookie = f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"set-cookie", cookie.encode()),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _WELCOME})


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSED})
