"""`headrace cluster init` on a real server: each party gets in by its own folder, and what was there stays."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import CredentialRefused, connect
from headrace.bus.credential_files import read_credential
from headrace.errors import BadInput
from headrace.runtime.settings import load
from headrace_admission.settings import AdmissionSettings
from headrace_agent.settings import AgentSettings
from headrace_cli.cluster.command import init, push
from headrace_cli.cluster.tls import init as init_tls
from headrace_cli.up.commands import find_nats_server
from tests.support.nats_server import free_port
from tests.support.secured_cluster import Server


def lets_in(url: str, credential: Path, party: Party) -> bool:
    """True if the server lets the credential in."""

    async def try_it() -> bool:
        known = read_credential(str(credential))
        try:
            async with connect([url], name="test", credential=known, inbox_prefix=party.inbox, connect_timeout_s=10):
                return True
        except CredentialRefused:
            return False

    return anyio.run(try_it)


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("operator", [False, True])
def test_each_party_gets_in_by_its_own_folder_and_a_removed_node_does_not(tmp_path: Path, operator: bool) -> None:
    port = free_port()
    url, listen, folder, kept = f"nats://127.0.0.1:{port}", f"127.0.0.1:{port}", tmp_path / "cluster", tmp_path / "kept"
    init(folder, url=url, listen=listen, node=["far"], beside=["near"], operator=operator)
    near, far = (Party(kind=PartyKind.NODE, name=name) for name in ("near", "far"))
    parties = {kind.value: Party(kind=kind) for kind in PartyKind if kind.is_service}
    parties |= {"provisioner": Party(kind=PartyKind.PROVISIONER)}
    parties |= {"client": Party(kind=PartyKind.PERSON, name="anna"), "nodes/near": near, "client/nodes/far": far}

    with Server(folder) as server:
        assert [name for name, party in parties.items() if not lets_in(url, folder / name / "credential", party)] == []

        (folder / "client" / "nodes" / "far").rename(kept)
        init(folder, url=url, listen=listen)
        if operator:
            push(folder)
        else:
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("Reloaded server configuration")
        assert not lets_in(url, kept / "credential", far)
        assert lets_in(url, folder / "nodes" / "near" / "credential", near)


def test_a_revoked_key_ends_its_connection_and_stays_revoked(tmp_path: Path) -> None:
    port = free_port()
    url, listen, folder, kept = f"nats://127.0.0.1:{port}", f"127.0.0.1:{port}", tmp_path / "cluster", tmp_path / "kept"
    init(folder, url=url, listen=listen, node=["far", "near"], operator=True)
    far, near = (Party(kind=PartyKind.NODE, name=name) for name in ("far", "near"))
    before = (folder / "nats" / "nats.conf").read_text()

    async def is_cut_off() -> bool:
        known = read_credential(str(kept / "credential"))
        async with connect([url], name="test", credential=known, inbox_prefix=far.inbox) as bus:
            await anyio.to_thread.run_sync(push, folder)
            with anyio.fail_after(20):
                await bus.wait_closed()
        return True

    with Server(folder):
        (folder / "client" / "nodes" / "far").rename(kept)
        init(folder, url=url, listen=listen)
        assert anyio.run(is_cut_off)

    # Though it finds the first word again in its configuration.
    (folder / "nats" / "nats.conf").write_text(before)
    with Server(folder):
        assert not lets_in(url, kept / "credential", far)
        assert lets_in(url, folder / "client" / "nodes" / "near" / "credential", near)


def test_only_a_cluster_with_an_operator_has_something_to_push(tmp_path: Path) -> None:
    init(tmp_path, url="nats://127.0.0.1:1")
    with pytest.raises(BadInput, match="has no operator"):
        push(tmp_path)


@pytest.mark.parametrize("operator", [False, True])
def test_what_is_there_stays_and_is_for_its_owner_only(tmp_path: Path, operator: bool) -> None:
    folder = tmp_path / "cluster"
    init(folder, url="nats://10.0.0.1:4222", node=["far"], health="127.0.0.1:8222", operator=operator)
    before = files(folder)
    init(folder, url="nats://10.0.0.1:4222", health="127.0.0.1:8222")

    assert files(folder) == before
    assert 'http: "127.0.0.1:8222"' in before["nats/nats.conf"]
    assert {path.stat().st_mode & 0o077 for path in folder.rglob("*")} == {0}


def test_services_and_agents_start_with_the_settings(tmp_path: Path) -> None:
    init(tmp_path, url="nats://10.0.0.1:4222", node=["far"])

    admission = load(AdmissionSettings, "admission", tmp_path / "admission" / "settings.toml", {})
    assert (admission.nats_url, admission.max_operation_count) == ("nats://10.0.0.1:4222", 50_000)
    agent = load(AgentSettings, "agent", tmp_path / "client" / "nodes" / "far" / "settings.toml", {})
    credential = tmp_path / "client" / "nodes" / "far" / "credential"
    assert (agent.node_name(), agent.credential_file) == ("far", str(credential))
    assert credential.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "10.0.0.1:4222"}, "--url"),
        ({"url": "nats://h", "node": ["Far"]}, "Far"),
        ({"url": "nats://h", "node": ["one"], "beside": ["one"]}, "one"),
        ({"url": "nats://h", "health": "0.0.0.0:8222"}, "--health: '0.0.0.0:8222'.*loopback"),
        ({"url": "nats://h", "health": "10.0.0.1:8222"}, "--health"),
        ({"url": "nats://h", "health": "[::]:8222"}, "--health"),
        ({"url": "nats://h", "health": ":8222"}, "--health"),
        ({"url": "nats://h", "health": "127.0.0.1"}, "--health"),
        ({"url": "nats://h", "administrators": "Eve"}, "Eve"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        init(tmp_path, **options)  # type: ignore[arg-type]


def test_servers_of_a_cluster_know_each_other_by_one_secret(tmp_path: Path) -> None:
    for _ in range(2):
        init(tmp_path, url="nats://a:4222,nats://b:4222", servers="one,two")
        found = [(tmp_path / name / "nats.conf").read_text() for name in ("one", "two")]
        password = (tmp_path / "one" / "routes").read_text().strip().partition(":")[2]

        assert len(password) >= 32
        for name, text in zip(("one", "two"), found, strict=True):
            assert f'server_name: "{name}"' in text
            assert f'store_dir: "{tmp_path}/{name}/store"' in text
            assert all(f"nats-route://routes:{password}@{other}:6222" in text for other in ("one", "two"))


@pytest.mark.parametrize("operator", [False, True])
def test_servers_of_a_cluster_speak_tls_with_each_other_and_take_their_configuration(
    tmp_path: Path, operator: bool
) -> None:
    servers, tls, cluster = ("one", "two", "three"), tmp_path / "tls", tmp_path / "cluster"
    init_tls(tls, *servers, "127.0.0.1")
    url = "tls://127.0.0.1:4222,tls://127.0.0.1:4223"
    for given in (tls, None):
        init(cluster, url=url, servers=",".join(servers), tls=given, operator=operator)

        for name in servers:
            configuration = cluster / name / "nats.conf"
            assert f'ca_file: "{cluster}/{name}/ca.pem"' in configuration.read_text()
            subprocess.run([find_nats_server(), "-t", "-c", str(configuration)], check=True, capture_output=True)


def test_one_address_of_several_without_tls_is_named(tmp_path: Path) -> None:
    init_tls(tmp_path / "tls", "127.0.0.1")
    with pytest.raises(BadInput, match="nats://b"):
        init(tmp_path / "cluster", url="tls://a,nats://b", servers="one,two", tls=tmp_path / "tls")
