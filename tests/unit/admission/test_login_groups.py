"""Lookups of groups in credentials, with a server that is not there at first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from headrace.access.account_authority import AccountAuthority
from headrace.access.key_credential import PERSON_LOGIN, KeyCredential
from headrace.access.nkeys import KeyKind, SigningKey
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import NotConnected
from headrace.ids import GroupName
from headrace_admission.groups import login_groups
from headrace_admission.groups.login_groups import LoginGroups
from headrace_admission.settings import AdmissionSettings
from tests.support.clocks import HandClock

_SIGNING = SigningKey(KeyKind.ACCOUNT, bytes(range(32)))
_AUTHORITY = AccountAuthority(
    account=SigningKey(KeyKind.ACCOUNT, bytes(32)).public,
    account_seed=_SIGNING.seed,
    operator_seed=SigningKey(KeyKind.OPERATOR, bytes(32)).seed,
    system=KeyCredential(jwt="", seed=""),
)


def a_word(number: int, *groups: str) -> str:
    key = SigningKey(KeyKind.USER, bytes([number] * 32)).public
    party = Party(kind=PartyKind.PERSON, name="ada", groups=tuple(map(GroupName, groups)))
    return _AUTHORITY.user_word(key, f"{PERSON_LOGIN}ada", party, now_s=1, lifetime_s=1)


class Servers:
    """The answers of the servers to each request."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def gather(self, _subject: str, data: bytes, *, wait_s: float) -> list[bytes]:
        self.asked.append(msgspec.json.decode(data))
        return self.answers

    async def request(self, _subject: str, data: bytes, *, timeout_s: float) -> bytes:
        self.asked.append(msgspec.json.decode(data))
        return self.answers[0]


def listed(*words: str) -> bytes:
    return msgspec.json.encode({"data": {"connections": [{"jwt": word} for word in words]}})


async def groups_with(
    monkeypatch: pytest.MonkeyPatch, servers: Servers, url: str, *, failures: int = 0
) -> tuple[GroupName, ...] | None:
    attempts = [NotConnected("no server")] * failures

    @asynccontextmanager
    async def connect(*_: object, **__: object) -> AsyncIterator[Servers]:
        if attempts:
            raise attempts.pop()
        yield servers

    monkeypatch.setattr(login_groups, "connect", connect)
    monkeypatch.setattr(login_groups, "_AGAIN_S", 0.0)
    taken: dict[str, tuple[GroupName, ...] | None] = {}
    async with anyio.create_task_group() as tasks:
        settings = AdmissionSettings(nats_url=url)
        groups = LoginGroups(settings, HandClock(), tasks, _AUTHORITY, taken.__setitem__)
        assert "not connected" in groups.trouble()
        with anyio.fail_after(20):
            async with anyio.create_task_group() as asking:
                asking.start_soon(groups.know, "ada")
                await anyio.lowlevel.checkpoint()
                tasks.start_soon(groups.keep)
        assert groups.trouble() == ""
        tasks.cancel_scope.cancel()
    return taken["ada"]


async def test_a_request_waits_for_the_connection_whatever_attempts_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = Servers(listed(a_word(1, "ml")))
    assert await groups_with(monkeypatch, servers, "nats://127.0.0.1:4222", failures=3) == ("ml",)
    assert {"auth": True, "filter_subject": "_INBOX.user.ada.>", "limit": 256} in servers.asked


async def test_the_groups_of_all_connections_at_all_servers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = listed(a_word(1, "ml"), a_word(1, "ml"), "no JWT", ""), listed(a_word(2, "students"))
    servers = Servers(first, b"no answer", second, listed())
    found = await groups_with(monkeypatch, servers, "nats://10.0.0.1:4222,nats://10.0.0.2:4222")
    assert found is not None
    assert sorted(found) == ["ml", "students"]
