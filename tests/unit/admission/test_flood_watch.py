"""How many connections one look reads, from a server that a test makes up."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from headrace.access.account_authority import AccountAuthority
from headrace.access.key_credential import KeyCredential
from headrace.bus import Bus
from headrace_admission.floods.flood_watch import FloodWatch
from headrace_admission.nodes.revocation import Revocations
from headrace_admission.settings import AdmissionSettings
from tests.support.clocks import HandClock


class Server:
    """A server with connections whose names have this length."""

    def __init__(self, connections: int, name_bytes: int) -> None:
        self.connections = connections
        self.name_bytes = name_bytes
        self.answered_bytes = 0

    async def gather(self, _subject: str, data: bytes, **_: Any) -> list[bytes]:
        request = msgspec.json.decode(data)
        numbers = range(self.connections)[request["offset"] : request["offset"] + request["limit"]]
        listed = [{"cid": number, "in_msgs": 1, "jwt": "x", "name": "n" * self.name_bytes} for number in numbers]
        answer = msgspec.json.encode({"server": {}, "data": {"server_id": "s1", "connections": listed or None}})
        self.answered_bytes += len(answer)
        return [answer, b"rubbish"]


def a_watch() -> FloodWatch:
    authority = AccountAuthority(account="A", account_seed="", operator_seed="", system=KeyCredential(jwt="", seed=""))
    return FloodWatch(AdmissionSettings(), HandClock(), authority, cast("Revocations", None))


@pytest.mark.parametrize("connections", [0, 1, 512, 2_000])
async def test_a_look_reads_all_connections(connections: int) -> None:
    listed, is_whole = await a_watch()._connections(cast("Bus", Server(connections, 10)))

    assert is_whole

    assert [each.cid for each in listed["s1"]] == list(range(connections))


async def test_a_look_reads_a_bounded_number_of_bytes_whatever_clients_name_themselves() -> None:
    server = Server(65_000, 30_000)
    listed, is_whole = await a_watch()._connections(cast("Bus", server))

    assert not is_whole

    assert server.answered_bytes < 50 * 2**20
    assert len(listed["s1"]) >= 1_000
