"""People of a cluster, by the commands that its page tells: let in, logged in, and shut out, in both ways of letting people in."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from headrace.client import NotAdmitted, Unanswered, connect
from headrace_cli.exit_statuses import Exit
from headrace_cli.up.commands import find_nats_server
from tests.support.forked_commands import run_forked
from tests.support.nats_server import free_port

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "people.md"


class Team:
    """A cluster's folder, its server and the services that people ask, and the home of each person."""

    services: tuple[str, ...] = ("admission", "fair_share")
    #: How its server is reached, where it encrypts.
    server_names: tuple[str, ...] = ("127.0.0.1",)

    def __init__(self, folder: Path, *, operator: bool) -> None:
        self.folder, self.home = folder, folder / "home"
        self.cluster = folder / "cluster"
        self.port = free_port()
        self.operator = operator
        self._processes: list[subprocess.Popen[str]] = []

    @property
    def url(self) -> str:
        return f"{'tls' if self.operator else 'nats'}://127.0.0.1:{self.port}"

    def run(self, *words: str, status: int | None = Exit.DONE, **environment: str) -> subprocess.CompletedProcess[str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "XDG_"))}
        done = run_forked(
            words, environment={**plain, "HOME": str(self.home), **environment}, cwd=self.folder, timeout_s=60
        )
        assert status in (None, done.returncode), f"{words}: {done.stdout}{done.stderr}"
        return done

    def initialise(self, administrators: str = "eve") -> None:
        more = ["--operator", "--tls", "tls"] if self.operator else []
        if self.operator:
            self.run("tls", "init", "tls", *self.server_names)
        listen = f"--listen=127.0.0.1:{self.port}"
        self.run("cluster", "init", "cluster", f"--url={self.url}", listen, f"--administrators={administrators}", *more)

    def start(self) -> None:
        server = self._start([find_nats_server(), "-c", str(self.cluster / "nats" / "nats.conf")])
        wait_for(server, "Server is ready")
        provisioner = str(self.cluster / "provisioner" / "credential")
        self.run("bus", "provision", f"--credential-file={provisioner}", HEADRACE_STATE=str(self.cluster / "client"))
        for name in self.services:
            settings = str(self.cluster / name / "settings.toml")
            self._start([sys.executable, "-m", f"headrace_{name}", "--config", settings])
        anyio.run(self._until_served)

    def tell_server(self) -> None:
        """With an operator `user remove` told it."""
        if not self.operator:
            self._processes[0].send_signal(signal.SIGHUP)
            wait_for(self._processes[0], "Reloaded server configuration")

    def end(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.communicate()

    async def _until_served(self) -> None:
        with anyio.fail_after(60):
            while True:
                try:
                    async with connect(state=self.cluster / "client", user="eve", timeout_s=5) as client:
                        # As soon as the tree is made.
                        if (await client.persons.rights()).pools:
                            return
                except Unanswered:
                    continue

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        quiet = subprocess.PIPE if not self._processes else subprocess.DEVNULL
        self._processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=quiet, text=True))
        return self._processes[-1]


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    assert any(words in line for line in process.stderr), f"the server never said: {words}"


@contextmanager
def a_team(folder: Path, *, operator: bool) -> Iterator[Team]:
    team = Team(folder, operator=operator)
    team.home.mkdir()
    team.initialise()
    for name in ("ada", "eve"):
        team.run("user", "add", name, "--cluster=cluster")
        shutil.copytree(team.cluster / "client" / "people" / name, folder / name)
    try:
        team.start()
        yield team
    finally:
        team.end()


def code_lines(page: Path) -> Iterator[list[str]]:
    """The words of each line of code."""
    is_code = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_code = not is_code
        elif is_code:
            yield shlex.split(line)


def login(team: Team, person: str, *more: str, status: int = Exit.DONE) -> subprocess.CompletedProcess[str]:
    ca_file = [f"--ca-file={person}/ca.pem"] if team.operator else []
    return team.run("login", team.url, f"--credential-file={person}/credential", *ca_file, *more, status=status)


def whoami(team: Team, place: str = "") -> dict[str, object]:
    found: dict[str, object] = json.loads(team.run("whoami", "--json", HEADRACE_PLACE=place).stdout)
    return found


async def enter(folder: Path, user: str) -> None:
    async with connect(state=folder, user=user):
        pass


@pytest.mark.parametrize("operator", [False, True], ids=["passwords", "operator"])
def test_a_person_who_was_let_in_logs_in_runs_and_is_shut_out(tmp_path: Path, operator: bool) -> None:
    with a_team(tmp_path, operator=operator) as team:
        login(team, "ada", "--name=work")
        known = whoami(team)
        team.run("run", "--", "true")
        (own,) = json.loads(team.run("op", "list", "--json").stdout)["operations"]

        login(team, "eve", "--name=all")
        assert whoami(team)["administrator"]
        assert whoami(team, "work") == known
        with pytest.raises(NotAdmitted):
            anyio.run(enter, team.folder / "ada", "eve")
        foreign = team.run("login", team.url, "--credential-file=eve/credential", "--user=ada", status=Exit.USAGE)

        team.run("user", "remove", "ada", "--cluster=cluster")
        team.tell_server()
        shut_out = team.run("whoami", status=Exit.REFUSED, HEADRACE_PLACE="work")
        login(team, "ada", "--name=again", status=Exit.REFUSED)
        team.run("logout")
        team.run("logout", "work")
        forgotten = team.run("logout", status=Exit.USAGE)

    assert (known["user"], known["administrator"]) == ("ada", False)
    assert (own["user"], own["spec"]["pool"]) == ("ada", "ada")
    assert "eve, the name in the credential" in foreign.stderr
    assert "refuses the connection" in shut_out.stderr
    assert "there is no login" in forgotten.stderr
    assert list(team.home.rglob("credential")) == []


def test_a_login_that_does_not_work_keeps_nothing_and_one_that_does_is_for_its_owner_only(tmp_path: Path) -> None:
    with a_team(tmp_path, operator=True) as team:
        (tmp_path / "torn").mkdir()
        shutil.copy(tmp_path / "ada" / "ca.pem", tmp_path / "torn")
        text = (tmp_path / "ada" / "credential").read_text()
        (tmp_path / "torn" / "credential").touch(0o600)
        seed = text.splitlines()[-2]
        (tmp_path / "torn" / "credential").write_text(text.replace(seed, other_seed(tmp_path)))
        torn = login(team, "torn", status=Exit.REFUSED)
        (tmp_path / "alone").mkdir()
        shutil.copy(tmp_path / "ada" / "credential", tmp_path / "alone")
        unknown = team.run("login", team.url, "--credential-file=alone/credential", status=Exit.REFUSED)
        assert "is not trusted" in unknown.stderr
        with_password = "tls://ada:hunter2@127.0.0.1:1"
        told = team.run("login", with_password, "--credential-file=ada/credential", status=Exit.USAGE)
        assert not list(team.home.rglob("*"))

        login(team, "ada")
        modes = {path.name: path.stat().st_mode & 0o777 for path in (team.home / ".config" / "headrace").rglob("*")}

    folders, files = {"places", "127.0.0.1"}, {"credential", "ca.pem", "endpoint.json", "current"}
    assert modes == dict.fromkeys(folders, 0o700) | dict.fromkeys(files, 0o600)
    for done in (torn, unknown, told):
        assert seed not in done.stderr
        assert "hunter2" not in done.stderr


def test_a_trial_is_refused_to_whoever_may_not_do_the_thing_itself(tmp_path: Path) -> None:
    heavier = tmp_path / "heavier.yaml"
    heavier.write_text("pools: {closed: {weight: 3}}\n")
    start, replay = ("--pool", "closed", "--", "true"), ("replay", "--with", str(heavier))
    with a_team(tmp_path, operator=False) as team:
        login(team, "eve", "--name=all")
        team.run("pool", "create", "closed", "access={use=[eve]; manage=[eve]}")
        by_administrator = team.run(*replay, status=Exit.USAGE)
        login(team, "ada")
        tried = team.run("run", "--dry-run", *start, status=Exit.REFUSED)
        started = team.run("run", *start, status=Exit.REFUSED)
        replayed = team.run(*replay, status=Exit.REFUSED)
        supposed = team.run("plan", "--live", "closed.weight=3", status=Exit.REFUSED)
        operations = json.loads(team.run("op", "list", "--json").stdout)["operations"]

    assert "the log is empty" in by_administrator.stderr
    assert "ada may not run operations in pool closed; this needs the right `use`" in tried.stderr
    assert tried.stderr == started.stderr
    assert (
        "ada may not change pool closed; this needs the right `write` on pool closed, held by: administrator, eve"
        in replayed.stderr
    )
    assert "ada may not change pool closed" in supposed.stderr
    assert operations == []


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path) -> None:
    team = Team(tmp_path, operator=True)
    team.home.mkdir()
    said = []
    try:
        for words in code_lines(PAGE):
            place = words.pop(0).partition("=")[2] if words[0].startswith("HEADRACE_PLACE") else ""
            if words[0] == "cp":
                subprocess.run(words, cwd=tmp_path, check=True)
                continue
            assert words[0] == "headrace"
            if words[1] == "login" and not (team.home / ".config").exists():
                team.start()
            here = [word.replace("headrace.example:4222", f"127.0.0.1:{team.port}") for word in words[1:]]
            here = [word.replace("headrace.example", "127.0.0.1") for word in here]
            here += [f"--listen=127.0.0.1:{team.port}"] if words[1:3] == ["cluster", "init"] else []
            said.append(team.run(*here, HEADRACE_PLACE=place).stdout)
    finally:
        team.end()

    assert len(said) > 10
    assert any("ada" in text and "<Root>" in text for text in said)


def other_seed(folder: Path) -> str:
    return (folder / "eve" / "credential").read_text().splitlines()[-2]
