"""Servers at `tls://`: who is believed, and that nothing is ever said in the clear to one that was to be asked by TLS."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from headrace.bus import Credential, Message, NotConnected, ServerNotTrusted, connect
from headrace.client import NotTrusted
from headrace.client import connect as connect_client
from headrace.errors import BadInput
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer, nats_server

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities, `ca.pem` and `other.pem`, and a certificate for 127.0.0.1 of the first."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ca", "other"):
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        openssl(folder, "req", "-x509", *KEY, *files, "-days", "2", "-subj", f"/CN={name} of a test")
    files = ["-keyout", "server.key", "-out", "server.pem"]
    openssl(
        folder,
        "req",
        "-x509",
        *KEY,
        *files,
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    )
    return folder


@pytest.fixture(scope="module")
def secure(folder: Path) -> Iterator[NatsServer]:
    """A server that speaks TLS from the first byte on."""
    files = f'cert_file: "{folder}/server.pem", key_file: "{folder}/server.key"'
    with nats_server(f"tls {{ {files}, handshake_first: true }}\n") as server:
        yield server


def url_of(server: NatsServer) -> str:
    return server.url.replace("nats://", "tls://")


async def test_a_server_is_believed_by_the_word_of_our_own_authority(secure: NatsServer, folder: Path) -> None:
    async with connect([url_of(secure)], name="test", ca_file=str(folder / "ca.pem")) as bus:

        async def echo(message: Message) -> bytes:
            return message.data

        await bus.serve("echo", echo)
        assert await bus.request("echo", bytes(400_000), timeout_s=10) == bytes(400_000)


async def test_the_connection_is_made_again_by_tls(folder: Path, secure: NatsServer) -> None:
    async with connect([url_of(secure)], name="test", ca_file=str(folder / "ca.pem")) as bus:
        inbox = await bus.subscribe("news")
        secure.restart()
        await eventually(lambda: bus.statistics()["reconnects"] == 1)
        await bus.publish("news", b"after")
        assert (await anext(inbox)).data == b"after"


@pytest.mark.parametrize("ca_file", ["", "other.pem"])
async def test_a_server_that_nobody_vouches_for_is_refused(secure: NatsServer, folder: Path, ca_file: str) -> None:
    trusted = str(folder / ca_file) if ca_file else ""
    with pytest.raises(ServerNotTrusted, match="CERTIFICATE_VERIFY_FAILED"):
        async with connect([url_of(secure)], name="test", ca_file=trusted, connect_timeout_s=2):
            pass


async def test_nothing_is_said_in_the_clear_to_a_server_without_tls(folder: Path) -> None:
    with nats_server() as plain, pytest.raises(NotConnected):
        async with connect([url_of(plain)], name="test", ca_file=str(folder / "ca.pem"), connect_timeout_s=2):
            pass


async def test_whoever_says_that_no_tls_is_needed_learns_nothing(folder: Path) -> None:
    """A server in place of ours that greets in the clear hears the beginning of a handshake, and no word of who we are."""
    heard: list[bytes] = []

    async def greet(stream: SocketStream) -> None:
        async with stream:
            await stream.send(
                b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"tls_required":false}\r\n'
            )
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    heard.append(await stream.receive())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    url = f"tls://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
    told = connect(
        [url],
        name="test",
        ca_file=str(folder / "ca.pem"),
        credential=Credential(user="anna", password="secret"),
        connect_timeout_s=2,
    )
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, greet)
        with pytest.raises(NotConnected):
            async with told:
                pass
        tasks.cancel_scope.cancel()
    said = b"".join(heard)

    assert said.startswith(b"\x16\x03")
    assert [word for word in (b"CONNECT", b"anna", b"secret") if word in said] == []


@pytest.mark.parametrize(
    ("urls", "ca_file", "place"),
    [
        (["tls://a:1"], "missing.pem", "ca_file"),
        (["tls://a:1"], "server.key", "ca_file"),
        (["nats://a:1"], "ca.pem", "servers"),
        (["tls://a:1", "nats://a:2"], "ca.pem", "servers"),
        (["tls://a:1", "nats://a:2"], "", "servers"),
    ],
)
async def test_addresses_and_authorities_that_do_not_fit_are_bad_input(
    folder: Path, urls: list[str], ca_file: str, place: str
) -> None:
    with pytest.raises(BadInput) as refused:
        async with connect(urls, name="test", ca_file=str(folder / ca_file) if ca_file else ""):
            pass
    assert refused.value.place == place


async def test_a_client_takes_its_authority_from_the_environment(
    secure: NatsServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_NATS_URL", url_of(secure))
    with pytest.raises(NotTrusted, match="certificate"):
        async with connect_client(timeout_s=2):
            pass

    monkeypatch.setenv("HEADRACE_CA_FILE", str(folder / "ca.pem"))
    async with connect_client() as client:
        assert client.user
