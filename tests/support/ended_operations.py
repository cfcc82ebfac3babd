"""Operations that end in a real admission, without nodes: a small allocator of the test reports the ends of their jobs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio.to_thread

from headrace.client.places.endpoint import Endpoint
from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.role import role_of
from headrace.wire import ledger, subjects
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import OperationSpec, StartAnswer, StartOperation
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from headrace_cli.up.state_folder import StateFolder
from tests.support.forked_commands import Forked, begin_forked, run_forked
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, ask, running, stand_in_for

__all__ = ["LIMIT_S", "SETTINGS", "World", "finish", "names_in", "state_folder_of", "world"]

SETTINGS = AdmissionSettings(administrators="*")
LIMIT_S = 60.0
TREE = TreeName("default")


async def finish(
    server: NatsServer, *names: str, user: str = "anna", pool: str = "research", fails: bool = False
) -> None:
    """Operations of one job each start and end."""
    spec = OperationSpec(
        PoolName(pool),
        ["work"],
        resources=Resources(1, 150, 0, 2**30),
        title=f"=1+{user}",
        tries=1,
        max_failed_job_count=1,
    )
    async with a_bus(server, "user", user) as bus:
        for name in names:
            request = StartOperation(OperationId(name), spec)
            await ask(bus, subjects.user(user, "op.start"), request, StartAnswer)
    result = JobResult.FAILED if fails else JobResult.COMPLETED
    async with a_bus(server, "service", "allocator") as bus:
        await stand_in_for(bus, role_of("allocator", TREE))
        await ask(bus, subjects.ledger("attach"), ledger.Attach(TREE, 1), ledger.Attached)
        for name in names:
            end = JobEnd(
                OperationId(name), 0, 1, AllocationId("1-1"), result, started_at_ms=1, ended_at_ms=3001, cpu_ms=900
            )
            report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
            await ask(bus, subjects.ledger("report"), report, ledger.ReportAnswer)
        if fails:
            released = ledger.Released(TREE, 1, [OperationId(name) for name in names])
            await ask(bus, subjects.ledger("released"), released, ledger.ReleasedAnswer)


@contextmanager
def state_folder_of(server: NatsServer) -> Iterator[Path]:
    """A state folder with which commands find the server."""
    with TemporaryDirectory(prefix="hr-") as folder:
        state = StateFolder(Path(folder))
        state.renew_secret(state.credential, "person-anna")
        state.announce(Endpoint(url=server.url, user="anna"))
        yield Path(folder)


class World:
    """An admission on a server of its own, and commands of a person."""

    def __init__(self, server: NatsServer, state: Path) -> None:
        self.server = server
        self.state = state
        self.file = state / "ended.jsonl"
        #: Further variables of the environment.
        self.more: dict[str, str] = {}

    async def run(self, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        done = await anyio.to_thread.run_sync(
            lambda: run_forked(words, environment=self.environment, cwd=self.state, timeout_s=LIMIT_S)
        )
        assert done.returncode == expect, f"{words}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def begin(self, *words: str) -> Forked:
        return begin_forked(words, environment=self.environment, cwd=self.state)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        return kept | {"HEADRACE_STATE": str(self.state), "TOKEN": "secret-of-the-test"} | self.more

    def lines(self) -> list[str]:
        """The operations of the file."""
        return names_in(self.file.read_bytes())


def names_in(data: bytes) -> list[str]:
    """The operations of JSON lines."""
    return [json.loads(line)["operation"] for line in data.splitlines()]


@asynccontextmanager
async def world(settings: AdmissionSettings = SETTINGS) -> AsyncIterator[World]:
    with nats_server() as server, state_folder_of(server) as state:
        async with running(server, settings, serve):
            yield World(server, state)
