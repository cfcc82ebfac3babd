"""Service discovery as `nats micro` asks for it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headrace.bus import Credential, Message, ServiceInfo, connect
from tests.support.nats_server import NatsServer, nats_server

KINDS = {"PING": "ping", "INFO": "info", "STATS": "stats"}


async def echo(message: Message) -> bytes:
    if message.data == b"bad":
        raise ValueError("a secret")
    return message.data


async def test_a_service_answers_for_all_for_its_name_and_for_its_id(server: NatsServer, word: str) -> None:
    info = ServiceInfo(name=word, version="1.2.3-rc.1")
    async with (
        connect([server.url], name="one", service=info) as one,
        connect([server.url], name="two", service=info),
        connect([server.url], name="asks") as asks,
    ):
        await one.serve(f"{word}.x.*", echo, queue="members")
        for verb, kind in KINDS.items():
            answers = [
                answer
                for subject in (f"$SRV.{verb}", f"$SRV.{verb}.{word}")
                for answer in map(msgspec.json.decode, await asks.gather(subject, b"", wait_s=0.2))
                if answer["name"] == word
            ]
            assert len(answers) == 4
            assert len({answer["id"] for answer in answers}) == 2
            for answer in answers:
                assert answer["type"] == f"io.nats.micro.v1.{kind}_response"
                assert answer["version"] == "1.2.3-rc.1"
                assert answer["metadata"] == {}
            single = await asks.gather(f"$SRV.{verb}.{word}.{answers[0]['id']}", b"", wait_s=0.2)
            assert [msgspec.json.decode(answer)["id"] for answer in single] == [answers[0]["id"]]


async def test_what_is_served_is_described_and_counted(server: NatsServer, word: str) -> None:
    info = ServiceInfo(name=word, version="1.0.0")
    async with connect([server.url], name="one", service=info) as bus:
        await bus.serve(f"{word}.x.*", echo, queue="members")
        for data in (b"1", b"2"):
            await bus.request(f"{word}.x.y", data, timeout_s=10)
        await bus.gather(f"{word}.x.y", b"bad", wait_s=0.1)

        described = msgspec.json.decode(await bus.request(f"$SRV.INFO.{word}", b"", timeout_s=10))
        assert described["endpoints"] == [
            {"name": f"{word}-x", "subject": f"{word}.x.*", "queue_group": "members", "metadata": {}}
        ]
        counted = msgspec.json.decode(await bus.request(f"$SRV.STATS.{word}", b"", timeout_s=10))
        (endpoint,) = counted["endpoints"]
        assert (endpoint["num_requests"], endpoint["num_errors"], endpoint["last_error"]) == (3, 1, "ValueError")
        assert endpoint["average_processing_time"] == endpoint["processing_time"] // 3
        assert datetime.fromisoformat(counted["started"]).tzinfo is not None


async def test_without_the_permission_a_service_runs_undiscovered() -> None:
    users = """authorization { users = [ { user: u, password: p, permissions {
        publish: ["work"], subscribe: ["work", "_INBOX.>"] } } ] }"""
    with nats_server(users) as server:
        async with connect(
            [server.url],
            name="one",
            credential=Credential(user="u", password="p"),
            service=ServiceInfo(name="one", version="1.0.0"),
        ) as bus:
            inbox = await bus.subscribe("work")
            await bus.publish("work", b"done")
            assert (await anext(inbox)).data == b"done"
