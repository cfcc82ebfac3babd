"""docs/how-to/hosts.md: its commands lead from an empty host to a running agent, and out again."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from headrace_cli.exit_statuses import Exit
from tests.acceptance.test_people import Team

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "hosts.md"
PATIENCE_S = 60


class Fleet(Team):
    """A team with all services, and a host."""

    services = ("admission", "fair_share", "integral", "allocator")

    @property
    def log(self) -> Path:
        """All that is said on the host."""
        return self.folder / "host.log"

    def typed(self, words: str) -> list[str]:
        """A command of the page that has these words, as a person types it. Systemd runs no host of this test."""
        blocks = re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
        (line,) = [line for block in blocks for line in block.splitlines() if words in line and "--install" not in line]
        return shlex.split(line)[1:]

    def administer(self, *words: str, status: int | None = Exit.DONE) -> subprocess.CompletedProcess[str]:
        return self.run(*words, status=status, HEADRACE_STATE=str(self.cluster / "client"))

    def run_typed(self, words: str, status: int = Exit.DONE) -> str:
        done = self.administer(*self.typed(words), status=status)
        return done.stdout + done.stderr

    def until(self, is_so: Callable[[], bool]) -> None:
        """Looks again and again at what happens in other processes."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def node(self) -> dict[str, object]:
        told = self.administer("node", "list", "--json").stdout
        return next(iter(msgspec.json.decode(told)["nodes"]), {})

    def begin_join(self, token: str) -> subprocess.Popen[bytes]:
        """`agent join` on the host, which claims more than the token gives."""
        command = [sys.executable, "-m", "headrace_cli", *self.typed("agent join")]
        own = {"HOME": str(self.folder / "host"), "PATH": "/usr/bin:/bin", "HEADRACE_AGENT_TAGS": "fast,gpu"}
        own["HEADRACE_AGENT_USERS"] = "agent"  # tests may be root
        own["HEADRACE_AGENT_CONTAINERS"] = "off"  # or the tags would depend on this machine
        (self.folder / "token").write_text(token)
        with (self.folder / "token").open() as typed, self.log.open("w") as log:
            return subprocess.Popen(command, env=own, cwd=self.folder / "host", stdin=typed, stderr=log)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, operator=True)
    made.home.mkdir()
    (tmp_path / "host").mkdir()
    made.initialise("*")
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.mark.long
def test_the_page_leads_from_an_empty_host_to_a_running_agent_and_out_again(fleet: Fleet) -> None:
    token = fleet.run_typed("node token")
    joining = fleet.begin_join(token)
    try:
        fleet.until(lambda: fleet.node().get("state") == "online")
        assert joining.poll() is None
        words = psutil.Process(joining.pid).cmdline()
        assert "headrace_agent" in words
        assert not any("headrace-join" in word for word in words)

        told = fleet.run_typed("node get")
        assert re.search(r"tags +gpu\n", told)
        assert re.search(r"cut .*tags fast: claimed by its agent, but not in its token", told)
        ran = fleet.administer("run", "--wait", "--memory=64M", "--", "true")
        assert "1 of 1 jobs completed" in ran.stdout + ran.stderr

        assert "expected a node that has been silent for" in fleet.run_typed("node remove", Exit.REFUSED)
        fleet.run_typed("node drain")
        fleet.until(lambda: fleet.administer(*fleet.typed("node remove"), status=None).returncode == 0)
        assert joining.wait(PATIENCE_S) == 3
        assert "user authentication revoked" in fleet.log.read_text()
        assert fleet.node() == {}
        config = next(fleet.folder.glob("host/.local/state/headrace/agent-host-17/settings.toml"))
        again = subprocess.run(
            [sys.executable, "-m", "headrace_agent", "--config", config], capture_output=True, text=True, check=False
        )
        assert (again.returncode, "refuses the credential" in again.stderr) == (3, True)
    finally:
        joining.kill()
        joining.wait()
        for process in psutil.process_iter(["cmdline"]):
            if any(str(fleet.folder / "host") in word for word in process.info["cmdline"] or []):
                process.kill()
