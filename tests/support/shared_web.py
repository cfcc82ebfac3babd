"""A web service for everybody in a secured cluster, and what people type and programs send to it."""

from __future__ import annotations

import json
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from headrace_web.api.endpoint import PREFIX
from tests.support.forked_commands import begin_forked, run_forked
from tests.support.secured_cluster import PATIENCE_S, WholeCluster


class Site:
    """A web service for everybody in a cluster."""

    def __init__(self, cluster: WholeCluster, api: str) -> None:
        self.cluster = cluster
        self.api = api
        self.origin = api.removesuffix(PREFIX)
        self.trusted = ssl.create_default_context(cafile=cluster.ca_file)

    def environment(self, person: str) -> dict[str, str]:
        return {"HEADRACE_STATE": str(self.cluster.folder / "client" / "people" / person), "COLUMNS": "300"}

    def type(self, person: str, *words: str, expect: int = 0) -> str:
        """What a person reads on stdout after a command."""
        done = run_forked(words, environment=self.environment(person), cwd=self.cluster.path, timeout_s=PATIENCE_S)
        assert done.returncode == expect, done.stderr
        return done.stdout if not expect else done.stderr

    def program(self, token: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.api, headers=headers, verify=self.trusted, timeout=PATIENCE_S)

    def status(self, token: str, path: str = "/me") -> int:
        with self.program(token) as program:
            return program.get(path).status_code


@contextmanager
def a_site(cluster: WholeCluster, *options: str, port: int = 0) -> Iterator[Site]:
    """A web service that has no credential, only the address of the cluster."""
    server = cluster.folder / "nats"
    words = ("web", "--listen", f"127.0.0.1:{port}", "--json", *options)
    files = ("--certificate", str(server / "server.pem"), "--key", str(server / "server.key"))
    environment = {"HEADRACE_NATS_URL": cluster.url, "HEADRACE_CA_FILE": cluster.ca_file}
    process = begin_forked((*words, *files), environment=environment, cwd=cluster.path)
    try:
        assert process.stdout is not None
        yield Site(cluster, json.loads(process.stdout.readline())["api"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
