"""Who may talk to the studio."""

from __future__ import annotations

import asyncio

import pytest

from dpvi.cli.main import main
from dpvi.studio.guard import Guard, checked_port, loopback

TOKEN = "a-token-of-this-start"
HERE = (b"host", b"127.0.0.1:8765")
COOKIE = (b"cookie", f"other=1; dpvi_studio={TOKEN}".encode())


async def inner(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


def answer(*headers, query: bytes = b"", kind: str = "http") -> dict:
    """The first thing that is sent back."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": kind, "headers": list(headers), "query_string": query}
    asyncio.run(Guard(inner, TOKEN)(scope, None, send))
    return sent[0]


def test_the_cookie_opens_everything():
    assert answer(HERE, COOKIE)["status"] == 200
    assert answer((b"host", b"localhost:8765"), COOKIE)["status"] == 200
    assert answer((b"host", b"[::1]:8765"), COOKIE)["status"] == 200
    assert answer(HERE, COOKIE, (b"origin", b"http://127.0.0.1:8765"), kind="websocket")["status"] == 200


def test_the_printed_address_is_traded_for_a_cookie():
    got = answer(HERE, query=f"token={TOKEN}".encode())
    headers = dict(got["headers"])
    assert got["status"] == 200
    assert headers[b"cache-control"] == b"no-store"
    assert b"HttpOnly; SameSite=Strict" in headers[b"set-cookie"]


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ([HERE], b""),
        ([HERE], b"token=guessed"),
        ([HERE, (b"cookie", b"dpvi_studio=guessed")], b""),
        ([HERE, (b"cookie", b"dpvi_studio=\xc3\xa9")], b""),
        ([HERE, (b"cookie", b";;=,")], b""),
        ([(b"host", b"evil.example:8765"), COOKIE], b""),  # a name of another site that leads here
        ([HERE, COOKIE, (b"origin", b"http://evil.example")], b""),
        ([HERE, COOKIE, (b"origin", b"null")], b""),  # a page that hides where it is from
        ([HERE, COOKIE, (b"origin", b"http://127.0.0.1:9999")], b""),  # another program's page on this machine
        ([COOKIE], b""),
    ],
)
def test_everybody_else_is_turned_away(headers, query):
    assert answer(*headers, query=query)["status"] == 403
    assert answer(*headers, query=query, kind="websocket") == {"type": "websocket.close", "code": 1008}


def test_it_listens_on_this_machine_alone(capsys):
    assert loopback("127.0.0.2") == "127.0.0.2"
    assert loopback("::1") == "::1"
    for host in ("0.0.0.0", "192.168.1.5", "example.org", "", "::"):
        with pytest.raises(ValueError, match=r"listens on this machine alone"):
            loopback(host)
    assert main(["studio", "--host", "0.0.0.0"]) == 2
    assert "--host 127.0.0.1" in capsys.readouterr().err
    assert main(["studio", "--port", "80"]) == 2
    assert checked_port(0) == 0
