"""`headrace tls init` and `headrace cluster init --tls` on a real server: who is believed, and what is kept."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import ServerNotTrusted, connect
from headrace.bus.credential_files import read_credential
from headrace.client import connect as connect_client
from headrace.errors import BadInput
from headrace.runtime.settings import load
from headrace_admission.settings import AdmissionSettings
from headrace_agent.settings import AgentSettings
from headrace_cli.cluster.command import init
from headrace_cli.cluster.tls import init as init_tls
from tests.support.nats_server import free_port
from tests.support.secured_cluster import Server

HEADRACE = Path(sys.executable).with_name("headrace")


def test_everybody_finds_the_authority_in_its_folder_and_believes_no_other(tmp_path: Path) -> None:
    port = free_port()
    url, listen, folder = f"tls://127.0.0.1:{port}", f"127.0.0.1:{port}", tmp_path / "cluster"
    init_tls(tmp_path / "tls", "localhost", "127.0.0.1")
    init_tls(tmp_path / "others", "127.0.0.1")
    init(folder, url=url, listen=listen, node=["far"], tls=tmp_path / "tls", operator=True)
    admission = load(AdmissionSettings, "admission", folder / "admission" / "settings.toml", {})
    agent = load(AgentSettings, "agent", folder / "client" / "nodes" / "far" / "settings.toml", {})

    async def enter(name: str, party: Party, ca_file: str) -> None:
        known = read_credential(str(folder / name / "credential"))
        bus = connect(
            [url], name="test", credential=known, inbox_prefix=party.inbox, connect_timeout_s=5, ca_file=ca_file
        )
        async with bus:
            pass

    async def enter_all() -> None:
        await enter("admission", Party(kind=PartyKind.ADMISSION), admission.ca_file)
        await enter(
            "client/nodes/far", Party(kind=PartyKind.NODE, name="far"), str(folder / "client/nodes/far" / agent.ca_file)
        )
        async with connect_client(state=folder / "client"):
            pass
        with pytest.raises(ServerNotTrusted, match=r"not signed by.*CERTIFICATE_VERIFY_FAILED"):
            await enter("admission", Party(kind=PartyKind.ADMISSION), str(tmp_path / "others" / "ca.pem"))

    with Server(folder):
        anyio.run(enter_all)
        pushed = subprocess.run([HEADRACE, "cluster", "push", folder], check=True, capture_output=True, text=True)
    assert pushed.stderr == ""


def test_called_again_it_keeps_the_authority_and_renews_the_server(tmp_path: Path) -> None:
    init_tls(tmp_path, "one.example")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    init_tls(tmp_path, "two.example")
    after = {path.name: path.read_text() for path in tmp_path.iterdir()}

    assert {name for name, text in after.items() if text != before[name]} == {"server.pem", "server.key"}
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
    ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))


def test_a_cluster_goes_on_with_tls_until_its_address_says_otherwise(tmp_path: Path) -> None:
    init_tls(tmp_path / "tls", "h.example")
    init(tmp_path / "cluster", url="tls://h.example:4222", tls=tmp_path / "tls")
    init(tmp_path / "cluster", url="tls://h.example:4222", node=["far"])
    assert "handshake_first: true" in (tmp_path / "cluster" / "nats" / "nats.conf").read_text()
    assert (tmp_path / "cluster" / "client" / "nodes" / "far" / "ca.pem").exists()
    with pytest.raises(BadInput, match="tls://"):
        init(tmp_path / "cluster", url="nats://h.example:4222")


@pytest.mark.parametrize("name", ["", "two words", "http://h.example"])
def test_a_name_that_is_none_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="DNS name"):
        init_tls(tmp_path / "tls", "h.example", name)
    assert not (tmp_path / "tls").exists()


def test_an_authority_without_its_key_is_named(tmp_path: Path) -> None:
    init_tls(tmp_path, "h.example")
    (tmp_path / "ca.key").unlink()
    with pytest.raises(BadInput, match=r"ca\.key"):
        init_tls(tmp_path, "h.example")
