"""What an agent offers, by its settings and its host, and what its jobs get of its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import BadInput
from headrace.ids import NodeName
from headrace.resources import Resources
from headrace.runtime.settings import load
from headrace.wire.codec import encode
from headrace.wire.nodes import Enrol, NodeRecord
from headrace_agent.host import facts
from headrace_agent.host.environment import host_environment, path_with_interpreter
from headrace_agent.settings import AgentSettings
from tests.support.mutate import reads


def test_figures_are_read_as_people_write_them() -> None:
    settings = load(
        AgentSettings,
        "agent",
        None,
        {
            "HEADRACE_AGENT_CPU": "2.5",
            "HEADRACE_AGENT_MEMORY": "4GiB",
            "HEADRACE_AGENT_GPU": "2",
            "HEADRACE_AGENT_GPUS": "a,b, c",
            "HEADRACE_AGENT_USER_SLOTS": "10",
            "HEADRACE_AGENT_TAGS": "fast, gpu,,fast",
            "HEADRACE_AGENT_STOP_TIMEOUT_MS": "3s",
            "HEADRACE_AGENT_STOP_MODE": "wait",
        },
    )

    assert settings.host_gpus().offered == ("a", "b")
    assert settings.total(2) == Resources(user_slots=10, cpu=250, gpu=2, memory=4 * 2**30)
    assert settings.tag_list() == ["fast", "gpu"]
    assert settings.stop_timeout_ms == 3_000
    assert settings.stop_mode.value == "wait"


def test_a_settings_file_may_say_the_same_in_its_own_types(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('[agent]\nnode = "n1"\ncpu = 2\ntags = ["b", "a"]\nmemory = 1000\n')

    settings = load(AgentSettings, "agent", path, {})

    assert settings.total(0) == Resources(user_slots=1_000, cpu=200, memory=1000)
    assert settings.tag_list() == ["a", "b"]
    assert settings.state().endswith("/headrace/agent-n1")
    assert settings.logs() == settings.state() + "/logs"


def test_a_number_of_memory_is_bytes() -> None:
    assert AgentSettings(memory=2**30).total(0).memory == 2**30


def test_without_settings_the_host_is_offered_as_it_is() -> None:
    total = AgentSettings().total(0)

    assert total.cpu > 0
    assert total.memory > 0
    assert total.user_slots == 1_000
    assert (total.gpu, total.network) == (0, 0)


def test_an_illegal_name_is_refused() -> None:
    with pytest.raises(BadInput, match="node name"):
        AgentSettings(node="not a name").node_name()


@pytest.mark.parametrize(
    ("tags", "message"),
    [("x" * 65, "tags: 'xxx.*at most 64 characters"), (",".join(map(str, range(101))), "101 tags.*at most 100")],
)
def test_tags_that_no_node_may_have_are_refused_at_the_start(tags: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        AgentSettings(tags=tags).tag_list()
    assert not reads(encode(NodeRecord(NodeName("n"), tags=tags.split(","))), NodeRecord)
    assert not reads(encode(Enrol(NodeName("n"), tags=tags.split(","))), Enrol)


def test_a_container_offers_what_its_cgroup_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("1048576\n")

    assert facts.cpu_centi(tmp_path) == 50
    assert facts.memory_bytes(tmp_path) == 1_048_576


def test_a_cgroup_without_limits_leaves_the_host_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")

    assert facts.cpu_centi(tmp_path) == facts.cpu_centi(tmp_path / "nothing")
    assert facts.memory_bytes(tmp_path) == facts.memory_bytes(tmp_path / "nothing")


def test_a_folder_that_can_be_written_has_no_defect_and_keeps_no_trace(tmp_path: Path) -> None:
    assert facts.defect_of_folder(str(tmp_path)) == ""
    assert list(tmp_path.iterdir()) == []
    assert facts.defect_of_folder(str(tmp_path / "not there yet")) == ""


def test_a_folder_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert facts.defect_of_folder(f"{tmp_path}/file") == f"{tmp_path}/file cannot be written: Not a directory"


def test_the_folder_of_the_interpreter_comes_last_and_once() -> None:
    assert path_with_interpreter("/usr/bin:/bin", "/opt/python/bin") == "/usr/bin:/bin:/opt/python/bin"
    assert path_with_interpreter("/opt/python/bin:/bin", "/opt/python/bin") == "/opt/python/bin:/bin"


def test_jobs_get_a_home_a_user_and_a_locale_where_the_agent_has_none() -> None:
    environment = host_environment({"TOKEN": "secret"}, path="/bin", home="/home/ann", user="ann")

    assert environment == {
        "HOME": "/home/ann",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "LOGNAME": "ann",
        "PATH": "/bin",
        "USER": "ann",
    }


def test_the_hosts_own_language_is_not_overridden() -> None:
    environment = host_environment({"LANG": "de_DE.UTF-8"}, path="/bin", home="/", user="ann")

    assert environment["LANG"] == "de_DE.UTF-8"
    assert "LC_ALL" not in environment


def test_an_agent_is_told_from_others_by_its_machine_and_the_mark_of_its_folder(tmp_path: Path) -> None:
    def machine(folder: str) -> str:
        return AgentSettings(state_folder=str(tmp_path / folder)).machine_name()

    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    one = machine("one")
    assert one.startswith(f"{facts.machine_name()}, state folder ")
    assert machine("other") != one
    (tmp_path / "one").rename(tmp_path / "moved")
    assert machine("moved") == one
    assert machine("nowhere") == facts.machine_name()
    assert AgentSettings(machine="rack-7", state_folder=str(tmp_path / "moved")).machine_name() == "rack-7"
    assert AgentSettings(machine="*", state_folder=str(tmp_path / "moved")).machine_name() == ""


def test_a_node_that_was_enrolled_by_its_machine_alone_belongs_to_the_agent_there() -> None:
    record = NodeRecord(NodeName("n1"), machine="host (1)")

    assert record.is_of("host (1), state folder 12345678")
    assert not record.is_of("host (12), state folder 12345678")
    assert not NodeRecord(NodeName("n1"), machine="host (1), state folder 1").is_of("host (1), state folder 2")
