"""What a command says of a server that is away, or that does not prove who it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import connect
from headrace_cli.cluster.command import init
from headrace_cli.cluster.consumers import Consumer
from headrace_cli.cluster.tls import init as init_tls
from headrace_cli.exit_statuses import Exit
from tests.support.forked_commands import run_forked
from tests.support.nats_server import free_port
from tests.support.secured_cluster import Server


class Cluster:
    """The folder of a cluster with TLS, and commands in a folder beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"tls://127.0.0.1:{self.port}"
        init_tls(folder / "tls", "127.0.0.1")
        init_tls(folder / "others", "127.0.0.1")
        listen = f"127.0.0.1:{self.port}"
        init(folder / "cluster", url=self.url, listen=listen, tls=folder / "tls", operator=True)

    def run(self, *words: str, status: Exit, **environment: str) -> str:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "XDG_"))}
        plain |= {"HOME": str(self.folder / "home"), "COLUMNS": "1000", **environment}
        done = run_forked(words, environment=plain, cwd=self.folder / "cluster", timeout_s=60)
        assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
        return done.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with Server(tmp_path / "cluster"):
        yield made


def test_the_authority_beside_a_credential_is_found(cluster: Cluster) -> None:
    provision = ("bus", "provision", "--credential-file", "provisioner/credential")
    cluster.run(*provision, status=Exit.DONE, HEADRACE_NATS_URL=cluster.url)
    (cluster.folder / "cluster" / "provisioner" / "ca.pem").rename(cluster.folder / "elsewhere.pem")
    elsewhere = str(cluster.folder / "elsewhere.pem")
    cluster.run(*provision, "--ca-file", elsewhere, status=Exit.DONE, HEADRACE_NATS_URL=cluster.url)


async def test_a_client_with_an_address_acts_under_the_name_in_its_credential(cluster: Cluster) -> None:
    init(cluster.folder / "cluster", url=cluster.url, consumer=[Consumer.NOTIFY])
    async with connect(url=cluster.url, credential_file=cluster.folder / "cluster/notify/credential") as client:
        assert client.user == "headrace-notify"


@pytest.mark.parametrize("others", [False, True])
def test_a_server_that_no_authority_vouches_for_is_named_and_nobody_is_told_to_start_it(
    cluster: Cluster, others: bool
) -> None:
    if others:
        authority = cluster.folder / "others" / "ca.pem"
        (cluster.folder / "cluster" / "provisioner" / "ca.pem").write_text(authority.read_text())
        believed = "the authorities in provisioner/ca.pem"
    else:
        (cluster.folder / "cluster" / "provisioner" / "ca.pem").unlink()
        believed = "the authorities of this system"
    words = ("bus", "provision", "--credential-file", "provisioner/credential")
    said = cluster.run(*words, status=Exit.REFUSED, HEADRACE_NATS_URL=cluster.url)

    assert f"the server at {cluster.url} is not trusted: its certificate is not signed by {believed}" in said
    assert "--ca-file" in said
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "headrace up" not in said


def test_a_server_of_another_name_is_named(cluster: Cluster) -> None:
    url = cluster.url.replace("127.0.0.1", "localhost")
    words = ("bus", "provision", "--credential-file", "provisioner/credential")
    said = cluster.run(*words, status=Exit.REFUSED, HEADRACE_NATS_URL=url)

    assert f"the server at {url} is not trusted: Hostname mismatch" in said
    assert "'localhost'" in said


def test_whoever_uses_a_cluster_is_not_told_to_start_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    said = cluster.run("op", "list", status=Exit.NOT_RUNNING, HEADRACE_STATE="client")
    at_once = cluster.run("op", "list", status=Exit.NOT_RUNNING, HEADRACE_NATS_URL="nats://127.0.0.1:1")
    own = cluster.run("op", "list", status=Exit.NOT_RUNNING, HEADRACE_STATE="nowhere")

    assert said == (
        f"Headrace does not answer at {cluster.url} (nothing listens at 127.0.0.1:{cluster.port}); "
        "report this to the administrator of that cluster\n"
    )
    assert "headrace up" not in said + at_once
    assert "start it with `headrace up`, or use a cluster with `headrace login`" in own
