"""`headrace web`, attacked by another account of its machine, which can connect and has no secret."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest
import uvicorn

from headrace_web.api.context import Context
from headrace_web.app import make_app
from headrace_web.connections import MOST_OF_PERSON, MOST_STRANGERS, Strangers
from headrace_web.door import Door
from headrace_web.server import _CONFIG

#: Requests of these tests reach no endpoint, so nothing is asked over a bus.
NO_BUS = Context(cast("Any", None), cast("Any", None))


@contextlib.asynccontextmanager
async def a_web() -> AsyncIterator[tuple[Door, int]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port = listener.getsockname()[1]
        door, strangers = Door(port, lambda: "known to this test"), Strangers()
        app = make_app(NO_BUS, door, strangers, cast("Any", None))
        config = uvicorn.Config(app, http=strangers.protocol(), **_CONFIG)
        server = uvicorn.Server(config)
        running = asyncio.create_task(server._serve([listener]))
        yield door, port
        server.should_exit = server.force_exit = True
        await running


async def closed(readers: list[asyncio.StreamReader]) -> int:
    await asyncio.sleep(0.2)
    return sum(reader.at_eof() or reader.exception() is not None for reader in readers)


async def test_connections_without_a_secret_are_bounded_and_keep_nobody_out() -> None:
    async with a_web() as (door, port):
        secret = {"authorization": f"Bearer {door.secrets.program_token}"}
        api = f"http://127.0.0.1:{port}/api/v1"
        async with httpx.AsyncClient(headers=secret) as owner:
            # The connection of the person stays open, and is not closed for the sake of strangers.
            assert (await owner.get(f"{api}/openapi.json")).status_code == 200
            opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MOST_STRANGERS)]
            for _, writer in opened:
                with contextlib.suppress(OSError):
                    writer.write(b"POST /session HTTP/1.1\r\nx: ")
            assert await closed([reader for reader, _ in opened]) == 2 * MOST_STRANGERS
            assert (await owner.get(f"{api}/openapi.json")).status_code == 200
        async with httpx.AsyncClient(headers=secret) as owner:
            assert (await owner.get(f"{api}/openapi.json")).status_code == 200
        for _, writer in opened:
            writer.close()


async def test_a_body_without_a_secret_is_short_and_its_cut_is_no_fault(capfd: pytest.CaptureFixture[str]) -> None:
    async with a_web() as (_, port):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as stranger:
            answer = await stranger.post("/session", json={"ticket": "x" * 1024})
            assert (answer.status_code, answer.json()["type"]) == (413, "urn:headrace:too_large")
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /session HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 9\r\n\r\n{{"
        writer.write(head.encode())
        await asyncio.sleep(0.1)
        writer.close()
        await asyncio.sleep(0.1)
    assert "failed" not in capfd.readouterr().err


async def test_cookies_are_not_unquoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In older releases of Python, unquoting a long cookie takes seconds."""

    def unquote(value: str) -> str:
        raise AssertionError(value)

    monkeypatch.setattr("http.cookies._unquote", unquote)
    async with a_web() as (door, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as browser:
        cookie = f'other=1; {door.cookie_name}="' + '\\"' * 8_000 + '"'
        answers = [
            await browser.request(method, path, headers={"cookie": cookie})
            for method, path in (("GET", "/api/v1/openapi.json"), ("DELETE", "/session"), ("GET", "/"))
        ]
    assert [each.status_code for each in answers] == [401, 401, 200]


async def test_requests_that_are_not_http_write_no_line(caplog: pytest.LogCaptureFixture) -> None:
    async with a_web() as (_, port):
        for sent in (
            b"GET /\r\n\r\n",
            b"\0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await reader.readline()
            writer.close()
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


class Transport:
    """A connection that a test makes up."""

    def __init__(self, strangers: Strangers, address: object) -> None:
        self.is_open = True
        strangers.add(address, cast("Any", self))

    def abort(self) -> None:
        self.is_open = False


def test_the_connections_of_a_person_are_bounded_and_keep_nobody_else_out() -> None:
    """A connection that has shown a token may stay open for ever, with half of its next request."""
    strangers = Strangers()
    others = {}
    for person in ("ben", "carl"):
        others[person] = Transport(strangers, person)
        strangers.admit(person, person)
    own = [Transport(strangers, 0)]
    strangers.admit(0, "anna")
    for address in range(1, 3 * MOST_OF_PERSON):
        own.append(Transport(strangers, address))
        strangers.admit(address, "anna")
        strangers.admit(0, "anna")
    # The connection that goes on sending requests stays.
    assert own[0].is_open
    assert [each.is_open for each in own[1:]] == [False] * 2 * MOST_OF_PERSON + [True] * (MOST_OF_PERSON - 1)
    # A connection belongs to the person of its last request, and is forgotten when it ends.
    strangers.admit("carl", "ben")
    for address in ("ben", "carl", *range(3 * MOST_OF_PERSON)):
        strangers.remove(address)
        strangers.admit(address, "dora")
    assert all(each.is_open for each in others.values())
    assert not strangers._of_persons
    assert not strangers._persons
