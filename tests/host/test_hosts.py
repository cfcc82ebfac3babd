"""docs/how-to/hosts.md on a virtual host: a systemd, a cgroup v2 and accounts of its own, and no part stands in for another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.acceptance.test_hosts import PAGE, Fleet
from tests.host.guest import OUTSIDE, Guest

AGENT, RUNNER = "headrace-agent-host-17.service", "headrace-runner-host-17.service"
CGROUP = f"/sys/fs/cgroup/system.slice/{RUNNER}"
STATE = "/var/lib/headrace/agent-host-17"
HEADRACE = "/opt/headrace/bin/headrace"

pytestmark = pytest.mark.timeout(900)


class FleetOfTheHost(Fleet):
    """Services on this machine, whose server the host reaches by another name."""

    server_names = ("127.0.0.1", OUTSIDE)

    def token(self) -> str:
        """What the administrator of the page makes."""
        return self.administer(*self.typed("node token"), "--url", f"tls://{OUTSIDE}:{self.port}").stdout

    def as_person(self, person: str, *words: str, status: int | None = 0) -> str:
        """A command of somebody who was let in."""
        done = self.run(*words, status=status, HEADRACE_STATE=str(self.cluster / "client" / "people" / person))
        return done.stdout + done.stderr

    def done_by(self, person: str, *words: str) -> str:
        """The id of an operation that completed."""
        return self.as_person(person, "run", "--cwd=/", "--wait", *words).split()[1]

    @contextmanager
    def at_work(self, host: Guest) -> Iterator[str]:
        """An operation of ada's whose two jobs sleep there until the block is left, and nothing else of hers does."""
        operation = self.as_person("ada", "run", "--cwd=/", "--jobs=2", "--cpu=0.1", "--", "sleep", "1000").strip()
        try:
            host.until(lambda: len(host.sleeping("ada")) == 2)
            yield operation
        finally:
            self.administer("op", "abort", operation)
        host.until(lambda: not host.sleeping("ada"))

    def history(self, operation: str) -> str:
        """What became of its jobs."""
        return self.administer("op", "history", operation).stdout

    def attempts(self, operation: str) -> dict[int, tuple[int, str]]:
        """The last attempt of each job and what became of it."""
        table = self.administer("op", "get", operation, "--jobs").stdout.partition("\njob  ")[2].splitlines()[1:]
        return {int(job): (int(attempt), state) for job, attempt, state, *_ in map(str.split, table)}


def of_page(words: str) -> str:
    """The command of the page that has these words."""
    blocks: list[str] = re.findall(r"```\n(.*?)```", PAGE.read_text().replace("\\\n", " "), re.DOTALL)
    (line,) = [line for block in blocks for line in block.splitlines() if words in line]
    return line.replace("headrace ", f"{HEADRACE} ", 1) if line.startswith("headrace ") else line


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetOfTheHost]:
    made = FleetOfTheHost(tmp_path_factory.mktemp("fleet"), operator=True)
    made.home.mkdir()
    made.initialise("*")
    for person in ("ada", "bob"):
        made.run("user", "add", person, "--cluster=cluster")
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A host that has Headrace, and an account for ada."""
    guest = Guest(tmp_path_factory.mktemp("virtual") / "host")
    try:
        guest.until_up()
        guest.run("useradd --create-home ada")
        yield guest
    finally:
        guest.end()


@pytest.fixture(scope="module")
def host(empty: Guest, fleet: FleetOfTheHost) -> Guest:
    """A host that has joined as the page says, in a tree that uses isolated nodes only."""
    said = empty.run(of_page("agent join --token - --install"), typed=fleet.token())
    assert "this host is node host-17 of tree default" in said
    assert f"{AGENT} is enabled and started" in said
    empty.until(lambda: fleet.node().get("state") == "online")
    fleet.administer("tree", "set", "default", "require_isolation=true")
    return empty


def test_a_host_tells_before_it_joins_what_it_can_do(empty: Guest) -> None:
    assert "limits: rlimit: " in empty.run(f"HEADRACE_AGENT_USERS=ada=ada {HEADRACE} agent selftest")

    said = empty.run(of_page("systemd-run"))

    assert "ok      limits: cgroup2: " in said
    assert said.count("ok      ") == 6
    assert "FAILED" not in said


def test_both_units_run_and_the_agents_key_is_out_of_reach_of_jobs(host: Guest, fleet: FleetOfTheHost) -> None:
    assert host.run(f"systemctl is-active {AGENT} {RUNNER}").split() == ["active", "active"]
    assert host.run(f"systemctl is-enabled {AGENT}").strip() == "enabled"
    assert host.run(f"systemctl show --property=Delegate --value {RUNNER}").strip() == "yes"
    owners = host.run(f"stat --format='%U %a' {STATE} {STATE}/credential {STATE}/runner.sock")
    assert owners.splitlines() == ["root 700", "root 600", "root 600"]

    told = " ".join(fleet.run_typed("node get").split())
    assert "isolation full: jobs run as other accounts" in told
    assert "limits cgroup2" in told


def test_the_selftest_of_a_node_that_systemd_runs_has_a_cgroup_as_its_unit_says(host: Guest) -> None:
    said = host.run(of_page("agent selftest --config"))

    assert "ok      limits: cgroup2: in /sys/fs/cgroup/system.slice/headrace-selftest-host-17.service" in said
    assert "ok      isolation: full" in said
    assert "FAILED" not in said
    drop_in = f"/etc/systemd/system/{RUNNER}.d/none.conf"
    host.run(
        f"mkdir {drop_in.rpartition('/')[0]}; printf '[Service]\\nProtectControlGroups=yes\\n' > {drop_in}; systemctl daemon-reload"
    )
    assert "FAILED  limits: rlimit: " in host.run(of_page("agent selftest --config"), status=1)
    host.run(f"rm --recursive {drop_in.rpartition('/')[0]}; systemctl daemon-reload")


def test_a_job_that_takes_too_much_memory_is_ended_for_that_and_alone(host: Guest, fleet: FleetOfTheHost) -> None:
    runner = host.main_pid(RUNNER)
    greed = "data = bytearray(512 << 20); data[::4096] = bytes(len(data) // 4096)"
    more = ("--memory", "64M", "--max-failed-job-count", "1", "--wait")

    said = fleet.as_person("ada", "run", "--cwd=/", *more, "--", "python3", "-c", greed, status=1)

    assert "on node host-17: out of memory: limit 64 MiB)" in said
    assert "failed on node host-17 as ada: signal 9" in said
    assert host.main_pid(RUNNER) == runner


def test_a_job_is_kept_to_its_cores_and_reads_its_limits(host: Guest, fleet: FleetOfTheHost) -> None:
    script = """cd /sys/fs/cgroup$(cut --delimiter=: --fields=3 /proc/self/cgroup)
        while ! grep --quiet 'nr_throttled [1-9]' cpu.stat; do :; done
        cat cpu.max memory.max"""

    operation = fleet.done_by("ada", "--cpu", "0.2", "--memory", "64M", "--", "sh", "-c", script)

    assert fleet.as_person("ada", "op", "logs", operation).split() == ["20000", "100000", str(64 << 20)]


def test_a_job_runs_as_its_person_and_reaches_neither_key_nor_runner(host: Guest, fleet: FleetOfTheHost) -> None:
    script = f"""id -un; cat {STATE}/credential
        python3 -c "import socket; socket.socket(socket.AF_UNIX).connect('{STATE}/runner.sock')" """

    operation = fleet.done_by("ada", "--", "sh", "-c", script + "|| true")

    assert fleet.as_person("ada", "op", "logs", operation).splitlines() == ["ada"]
    assert fleet.as_person("ada", "op", "logs", operation, "--stderr").count("Permission denied") == 2
    run = ("run", "--cwd=/", "--max-failed-job-count", "1", "--wait", "--", "true")
    assert "this host has no account bob" in fleet.as_person("bob", *run, status=1)


def test_jobs_run_on_while_the_agent_is_restarted_or_killed(host: Guest, fleet: FleetOfTheHost) -> None:
    with fleet.at_work(host):
        before = host.sleeping("ada")

        host.run(f"systemctl restart {AGENT}")
        host.until(lambda: fleet.node()["state"] == "online")
        agent = host.main_pid(AGENT)
        host.run(f"kill -KILL {agent}")
        host.until(lambda: host.main_pid(AGENT) not in ("0", agent))
        host.until(lambda: fleet.node()["state"] == "online" and fleet.node().get("running_jobs") == 2)

        assert host.sleeping("ada") == before


def test_jobs_of_a_killed_runner_are_ended_told_and_run_again(host: Guest, fleet: FleetOfTheHost) -> None:
    with fleet.at_work(host) as operation:
        host.run(f"kill -KILL {host.main_pid(RUNNER)}")

        host.until(lambda: fleet.attempts(operation) == {0: (2, "running"), 1: (2, "running")})
        assert fleet.history(operation).count("lost: the runner was killed; it is retried") == 2
        assert len(host.sleeping("ada")) == 2


def test_no_jobs_fate_is_lost_by_a_reboot_or_a_loss_of_power(host: Guest, fleet: FleetOfTheHost) -> None:
    """The first job is over before. The others end only with the host, and begin anew after it."""
    script = 'test "$HEADRACE_JOB_INDEX" = 0 || exec sleep 1000'
    operation = fleet.as_person("ada", "run", "--cwd=/", "--jobs=3", "--cpu=0.1", "--", "sh", "-c", script).strip()
    host.until(lambda: fleet.attempts(operation) == {0: (1, "completed"), 1: (1, "running"), 2: (1, "running")})

    host.boot_again()
    host.until(lambda: fleet.attempts(operation) == {0: (1, "completed"), 1: (2, "running"), 2: (2, "running")})
    assert fleet.history(operation).count("the agent of this host stopped; it is retried") == 2

    host.lose_power()
    host.until(lambda: fleet.attempts(operation) == {0: (1, "completed"), 1: (3, "running"), 2: (3, "running")})
    assert fleet.history(operation).count("lost: ") == 2
    fleet.administer("op", "abort", operation)
    host.until(lambda: not host.sleeping("ada"))


def test_after_the_end_nothing_of_it_runs_there(host: Guest, fleet: FleetOfTheHost) -> None:
    with fleet.at_work(host):
        host.run(of_page("agent uninstall"))

        assert host.sleeping("ada") == []
        assert "0 unit files" in host.run("systemctl list-unit-files 'headrace-*'", status=None)
        assert "No such file" in host.run(f"ls {CGROUP}", status=2)
