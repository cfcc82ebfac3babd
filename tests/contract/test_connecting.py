"""How a connection begins, breaks and ends."""

from __future__ import annotations

import gc
from urllib.parse import urlparse

import anyio
import anyio.lowlevel
import pytest
from nats.aio.client import Server

from headrace.bus import (
    BusClosed,
    ConnectionLost,
    Credential,
    CredentialRefused,
    NotConnected,
    PermissionRefused,
    ServerTooOld,
    connect,
)
from headrace.bus.nats.connecting import next_server
from tests.contract.fake_server import fake_server
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer, nats_server

USERS = """
authorization { users = [
  { user: service, password: right, permissions {
      publish: ["open.>", "$JS.API.>", "_INBOX.>"], subscribe: ["open.>", "_INBOX.service.>"] } }
  { user: other, password: right }
] }
"""
SERVICE = Credential(user="service", password="right")


async def test_no_server_is_said_within_the_time_given() -> None:
    server = NatsServer()
    server.port = 1
    try:
        with pytest.raises(NotConnected, match=r"127\.0\.0\.1:1 within 0\.3 s"):
            async with connect([server.url], name="test", connect_timeout_s=0.3):
                pass
    finally:
        server.remove()


async def test_a_server_that_comes_late_is_found() -> None:
    with nats_server() as server:
        server.kill()
        connected = anyio.Event()

        async def client() -> None:
            async with connect([server.url], name="test", connect_timeout_s=30) as bus:
                await bus.barrier()
                connected.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client)
            await anyio.to_thread.run_sync(server.start)
            with anyio.fail_after(30):
                await connected.wait()


async def test_a_server_that_would_silently_ignore_newer_requests_is_refused() -> None:
    async with fake_server(version="2.10.26") as old:
        with pytest.raises(ServerTooOld, match=r"2\.10\.26; 2\.12 or newer"):
            async with connect([old.url], name="test"):
                pass


async def test_a_wrong_credential_is_refused_at_once_and_not_tried_for_ever() -> None:
    with nats_server(USERS) as server:
        for credential in (Credential(user="service", password="wrong"), None):
            with anyio.fail_after(20), pytest.raises(CredentialRefused):
                async with connect([server.url], name="test", credential=credential, connect_timeout_s=60):
                    pass


async def test_an_inbox_that_is_not_ours_is_refused_at_once() -> None:
    with nats_server(USERS) as server, pytest.raises(PermissionRefused, match=r"_INBOX\.node\.n1"):
        async with connect([server.url], name="test", credential=SERVICE, inbox_prefix="_INBOX.node.n1"):
            pass


async def test_what_the_server_refuses_is_raised_where_it_was_asked() -> None:
    with nats_server(USERS) as server:
        async with connect([server.url], name="test", credential=SERVICE, inbox_prefix="_INBOX.service") as bus:

            async def handler(_message: object) -> None:
                return None

            with pytest.raises(PermissionRefused, match=r"closed\.Subject"):
                await bus.serve("closed.Subject", handler)
            with pytest.raises(PermissionRefused, match=r"closed\.Subject"):
                await bus.serve("closed.Subject", handler, queue="q")
            with pytest.raises(PermissionRefused, match=r"closed\.>"):
                await bus.subscribe("closed.>")
            with anyio.fail_after(20), pytest.raises(PermissionRefused):
                await bus.request("closed.Subject", b"", timeout_s=60)

            await bus.publish("closed.subject", b"")
            await bus.barrier()
            await eventually(lambda: bus.statistics()["refused_publishes"] == 2)
            assert bus.statistics()["listeners"] == 1


@pytest.mark.parametrize("broken", ["headrace.bus.nats.link.Link.note_error", "headrace.bus.nats.link.understand"])
async def test_a_defect_in_the_handling_of_errors_does_not_make_the_bus_deaf(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    with nats_server(USERS) as server:
        async with connect([server.url], name="test", credential=SERVICE, inbox_prefix="_INBOX.service") as bus:
            inbox = await bus.subscribe("open.x")
            monkeypatch.setattr(broken, fail)

            await bus.publish("closed.x", b"refused by the server")
            await bus.barrier()
            await bus.publish("open.x", b"later")

            with anyio.fail_after(10):
                assert (await anext(inbox)).data == b"later"
            assert bus.statistics()["reconnects"] == 0


async def test_a_credential_that_is_withdrawn_closes_the_bus_for_good() -> None:
    with nats_server(USERS) as server:
        async with connect([server.url], name="test", credential=SERVICE, inbox_prefix="_INBOX.service") as bus:
            inbox = await bus.subscribe("open.x")
            ended = anyio.Event()

            async def ask() -> None:
                async def never(_message: object) -> None:
                    await anyio.sleep_forever()

                await bus.serve("open.never", never)
                with pytest.raises((BusClosed, ConnectionLost)):
                    await bus.request("open.never", b"", timeout_s=60)
                ended.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await eventually(lambda: bus.statistics()["running"])
                server.reload(USERS.replace("service,", "gone,"))

                with anyio.fail_after(20):
                    await bus.wait_closed()
                    await ended.wait()
                    with pytest.raises(BusClosed):
                        await anext(inbox)
            with pytest.raises(BusClosed):
                await bus.publish("open.x", b"")
            assert not bus.connected


async def test_a_credential_that_is_refused_after_an_outage_closes_the_bus_for_good() -> None:
    with nats_server(USERS) as server:
        async with connect([server.url], name="test", credential=SERVICE, inbox_prefix="_INBOX.service") as bus:
            server.kill()
            server._config = USERS.replace("service,", "gone,")
            server.start()

            with anyio.fail_after(20):
                await bus.wait_closed()


async def test_after_the_loss_of_all_servers_whichever_comes_back_is_found() -> None:
    with nats_server() as one, nats_server() as two:
        async with connect([one.url, two.url], name="test") as bus:
            for first, second in ((one, two), (two, one)):
                first.kill()
                second.kill()
                await eventually(lambda: not bus.connected)
                first.start()
                await eventually(lambda: bus.connected)


async def test_a_peer_that_is_silent_is_left() -> None:
    with nats_server() as server:
        async with connect([server.url], name="test", ping_interval_s=0.1) as bus:
            server.freeze()
            await eventually(lambda: not bus.connected)
            server.thaw()
            await eventually(lambda: bus.connected)
            await bus.barrier()


async def test_a_barrier_that_was_given_up_does_not_make_the_bus_deaf() -> None:
    """The PONG comes when nobody waits for it any more."""
    with nats_server() as server:
        async with connect([server.url], name="test") as bus:
            inbox = await bus.subscribe("x")
            server.freeze()
            with anyio.move_on_after(0.2) as scope:
                await bus.barrier()
            assert scope.cancelled_caught
            server.thaw()

            await bus.publish("x", b"still there")
            with anyio.fail_after(10):
                assert (await anext(inbox)).data == b"still there"
            await bus.barrier()
            assert bus.statistics()["reconnects"] == 0


async def test_leaving_the_block_raises_what_was_raised_in_it(server: NatsServer) -> None:
    with pytest.raises(ZeroDivisionError):
        async with connect([server.url], name="test"):
            raise ZeroDivisionError


def test_a_password_is_never_shown() -> None:
    assert "right" not in repr(SERVICE)


async def test_a_frozen_server_that_took_not_all_is_left_for_a_healthy_one(word: str) -> None:
    """nats-py waits until the frozen one has taken everything, which it never does."""
    with nats_server() as one, nats_server() as other:
        async with connect([one.url], name="test", ping_interval_s=0.5) as bus:
            bus._link._nats._setup_server_pool([other.url])
            one.freeze()

            async def publish_much() -> None:
                for _ in range(200):
                    await bus.publish(word, bytes(100_000))

            with pytest.raises(NotConnected):
                await publish_much()
            assert bus.statistics()["unsent_bytes"] > 0

            await eventually(lambda: bus.statistics()["reconnects"] == 1)
            assert await bus.gather(word, b"", wait_s=5) == []
            one.thaw()
    gc.collect()


async def test_each_try_at_a_server_that_never_greets_closes_the_one_before() -> None:
    """nats-py leaves each of them open: a server frozen for an hour would have used up every file that we may open."""
    async with fake_server() as server:
        async with connect([server.url], name="test", longest_reconnect_delay_s=0.01) as bus:
            bus._link._nats.options["connect_timeout"] = 0.1
            server.greets = False
            server.hang_up()

            await eventually(lambda: server.connections >= 6 and server.open_connections <= 1)

            server.greets = True
            await eventually(lambda: bus.connected)
        await eventually(lambda: server.open_connections == 0)


async def test_a_subscription_that_the_server_refuses_later_ends_the_bus(word: str) -> None:
    """nats-py would go on with one that looks alive and hears nothing."""
    with nats_server(USERS) as server:
        async with connect([server.url], name="test", credential=SERVICE, inbox_prefix="_INBOX.service") as bus:
            await bus.subscribe("open.x")
            server.reload(USERS.replace('subscribe: ["open.>", ', 'subscribe: ["open.y", '))

            with anyio.fail_after(20):
                await bus.wait_closed()


async def test_a_credential_that_expires_ends_the_bus_and_is_not_tried_again() -> None:
    async with fake_server() as server, connect([server.url], name="test") as bus:
        server.say(b"-ERR 'User Authentication Expired'")
        with anyio.fail_after(20):
            await bus.wait_closed()

        assert server.connections == 1
        with pytest.raises(BusClosed):
            await bus.publish("x", b"")


async def test_a_bus_that_is_closed_or_closing_is_not_connected(server: NatsServer) -> None:
    """nats-py says that it is connected while it drains."""
    async with connect([server.url], name="test") as bus:
        assert bus.connected
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.close)
            await anyio.lowlevel.checkpoint()
            assert not bus.connected
        assert not bus.connected


async def test_a_bus_closes_though_its_server_went_first_with_bytes_on_their_way() -> None:
    with nats_server() as server:
        async with connect([server.url], name="test") as bus:
            client = bus._link._nats
            server.kill()
            await eventually(lambda: not bus.connected)
            # As nats-py holds what was not flushed when the connection broke.
            client._pending, client._pending_data_size = [b"PING\r\n"], 6

            await bus.close()

        assert not bus.connected


def test_servers_are_tried_in_turn_after_pauses_that_grow_and_differ() -> None:
    """A fixed pause brings a whole fleet back at one moment; naming none tries the first server for ever."""
    fresh, tried = [
        Server(uri=urlparse(f"nats://127.0.0.1:{port}"), reconnects=tries) for port, tries in ((1, 0), (2, 5))
    ]

    first = [next_server([tried, fresh], {}, longest_delay_s=2.0) for _ in range(50)]
    later = [next_server([tried], {}, longest_delay_s=2.0)[1] for _ in range(50)]

    assert {server.uri.port for server, _ in first} == {1}
    assert len({pause for _, pause in first}) > 40
    assert max(pause for _, pause in first) < min(later)
    assert max(later) <= 2.0
    assert max(next_server([tried], {}, longest_delay_s=0.25)[1] for _ in range(50)) <= 0.25
