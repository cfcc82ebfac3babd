"""The texts of the units of systemd that `headrace agent install` writes."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import pytest

from headrace.errors import BadInput
from headrace.systemd.unit_text import SystemdUnit
from headrace.wire.nodes import StopMode
from headrace_agent.install.installation import units_of
from headrace_agent.install.units import agent_unit, runner_unit
from headrace_agent.runner.settings import parse
from headrace_agent.selftest.in_unit import properties_of
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner.hung_runner import KILL_AT_LOOK, LOOK_S


def read(unit: SystemdUnit) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.text)
    return parser


def of(account: str = "", **settings: object) -> tuple[configparser.ConfigParser, configparser.ConfigParser]:
    """The runner's and the agent's."""
    made = AgentSettings(node="host-17", state_folder="/var/lib/h", **settings)  # type: ignore[arg-type]
    runner, agent = units_of(made, Path("/var/lib/h/settings.toml"), account)
    assert (runner.name, agent.name) == ("headrace-runner-host-17.service", "headrace-agent-host-17.service")
    return read(runner), read(agent)


def test_the_runner_has_a_delegated_cgroup_and_the_limits_and_folders_of_the_settings() -> None:
    runner, _ = of(log_cap_bytes=5, logs_folder="/logs")

    assert (runner["Service"]["Delegate"], runner["Service"]["Slice"]) == ("yes", "system.slice")
    told = parse(shlex.split(runner["Service"]["ExecStart"])[3:])
    assert (told.state, told.logs, told.log_cap_bytes) == ("/var/lib/h", "/logs", 5)
    assert told.cgroup == "/sys/fs/cgroup/system.slice/headrace-runner-host-17.service"


def test_the_agent_starts_no_runner_pulls_its_unit_and_leaves_the_jobs_to_it_while_it_is_restarted() -> None:
    _, agent = of(stop_timeout_ms=60_500)

    assert agent["Service"]["Environment"] == "HEADRACE_AGENT_STARTS_RUNNER=false"
    assert "headrace-runner-host-17.service" in agent["Unit"]["Wants"].split()
    assert "headrace-runner-host-17.service" in agent["Unit"]["After"].split()
    assert agent["Service"]["RestartKillSignal"] == "SIGUSR2"
    assert "KillSignal" not in agent["Service"]
    assert int(agent["Service"]["TimeoutStopSec"]) >= 61 + 3
    assert (agent["Service"]["Restart"], agent["Install"]["WantedBy"]) == ("on-failure", "multi-user.target")


def test_an_agent_that_waits_for_its_jobs_when_it_is_stopped_is_not_killed_meanwhile() -> None:
    _, agent = of(stop_mode=StopMode.WAIT)

    assert agent["Service"]["TimeoutStopSec"] == "infinity"


def test_systemd_watches_both_and_the_runner_longer_than_an_agent_does() -> None:
    runner, agent = of()

    assert [unit["Service"]["Type"] for unit in (runner, agent)] == ["notify", "notify"]
    assert int(agent["Service"]["WatchdogSec"]) > 0
    assert int(runner["Service"]["WatchdogSec"]) > LOOK_S * KILL_AT_LOOK


def test_both_are_root_unless_there_is_an_account() -> None:
    assert ["User" in unit["Service"] for unit in of()] == [False, False]
    assert [unit["Service"]["User"] for unit in of("science")] == ["science", "science"]


@pytest.mark.parametrize("path", ["/a b/c", '/a"b', "/a'b", "/a\\b", "/50%/x", "/a$b", "/a;b", ""])
def test_words_are_read_back_as_they_were(path: str) -> None:
    unit = read(agent_unit("n", ["/bin/x", path], "", 0))

    words = shlex.split(unit["Service"]["ExecStart"])
    assert [word.replace("%%", "%").replace("$$", "$") for word in words] == ["/bin/x", path]
    assert path not in ("/50%/x", "/a$b") or path not in unit["Service"]["ExecStart"]


def test_what_no_unit_can_say_is_refused() -> None:
    with pytest.raises(BadInput, match="printable"):
        agent_unit("n", ["/bin/x", "/a\nUser=root"], "", 0)


def test_a_trial_has_all_that_a_unit_and_its_drop_ins_say_of_its_processes_and_nothing_of_how_it_runs() -> None:
    runner = runner_unit("host-17", ["run", "it"], "science").text
    drop_in = "# /etc/systemd/system/x.d/more.conf\n[Unit]\nDescription=other\n[Service]\n; a word\nMemoryMax=\\\n  1G\nExecStartPre=true\n"

    assert properties_of(f"# /etc/systemd/system/x\n{runner}\n{drop_in}") == [
        "User=science",
        "UMask=0077",
        "Slice=system.slice",
        "Delegate=yes",
        "OOMPolicy=continue",
        "TasksMax=80%",
        "MemoryMax=1G",
    ]
