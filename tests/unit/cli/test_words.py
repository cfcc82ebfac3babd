"""What a person writes on the command line, read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.client import NotRunning, find_place, new_operation_id, state_folder
from headrace.client.pool_trees import parse_pool_trees
from headrace.errors import BadInput
from headrace.ids import PoolName, operation_id
from headrace.pools import POOL_ATTRIBUTES, PartialResources, PoolConfig
from headrace.wire.operation_spec import PerTree
from headrace.wire.preemption import InterruptSignal, parse_signal
from headrace_cli.command_line import COMMANDS, app
from headrace_cli.commands.operations.key_values import parse_environment
from headrace_cli.commands.pools.changes import PoolOptions, move, transfer
from headrace_cli.commands.pools.pool import get
from headrace_cli.commands.pools.volume.command import volume
from headrace_cli.up.commands import scrubbed
from headrace_cli.up.node_option import parse_node, parse_nodes, parse_trees, spread
from tests.support.clocks import HandClock


def test_a_node_is_a_name_or_a_name_with_what_it_offers() -> None:
    assert parse_node("host").amounts == {}
    assert parse_node("host:tag=ssd,cpu=1,tag=new").tags == ["ssd", "new"]
    assert parse_node("host:cpu=1,containers=off").containers == "off"
    assert parse_node("small:cpu=2, memory=2G,user_slots=8").amounts == {"cpu": "2", "memory": "2G", "user_slots": "8"}


@pytest.mark.parametrize(
    "text", ["", "Host", "a.b", "a:cpu", "a:cpu=x", "a:disk=1", "a:cpu=1,cpu=2", "a:memory=1Q", "a:memory=4"]
)
def test_a_node_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_node(text)


def test_two_nodes_cannot_have_one_name() -> None:
    with pytest.raises(BadInput):
        parse_nodes(["a:cpu=1", "b", "a:cpu=2"])


def test_no_two_nodes_of_one_host_offer_the_same_gpu_device() -> None:
    nodes = parse_nodes(["a:gpu=2", "b:cpu=1", "c:gpu=1"])

    assert [(node.gpus, node.amounts["gpu"]) for node in nodes] == [("0,1", "2"), ("", "0"), ("2", "1")]
    # The agent of the only node finds the devices itself.
    (sole,) = parse_nodes(["a:cpu=1"])
    assert (sole.gpus, sole.amounts) == ("", {"cpu": "1"})
    with pytest.raises(BadInput, match="--node a: gpu: 129 cannot be used; expected at most 128"):
        parse_nodes(["a:gpu=129"])


def test_the_environment_of_jobs_holds_only_what_is_named() -> None:
    assert parse_environment(["A=1", "B", "C=x=y", "D="], {"B": "own", "SECRET": "s"}) == {
        "A": "1",
        "B": "own",
        "C": "x=y",
        "D": "",
    }


@pytest.mark.parametrize("item", ["=x", "MISSING"])
def test_a_variable_without_name_or_value_is_refused(item: str) -> None:
    with pytest.raises(BadInput):
        parse_environment([item], {})


def test_pool_options_become_only_the_keys_that_were_given() -> None:
    assert PoolOptions().changes() == {}
    assert PoolOptions(weight=2.0, guarantee="none", flow="cpu=2").changes() == {
        "weight": 2.0,
        "strong_guarantee_resources": {},
        "integral_guarantees/resource_flow": {"cpu": "2"},
    }


def test_pool_options_of_a_new_pool_are_amounts() -> None:
    settings = POOL_ATTRIBUTES.changed(PoolConfig(), PoolOptions(guarantee="cpu=1.5,memory=1G").changes()).value

    assert settings.strong_guarantee_resources == PartialResources(cpu=150, memory=1024**3)
    assert settings.weight is None


@pytest.mark.parametrize("text", ["cpu", "cpu=-1", "cores=2", "cpu=1,cpu=2"])
def test_a_guarantee_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        PoolOptions(guarantee=text).changes()


def test_our_own_variables_do_not_reach_the_services_unless_they_name_one() -> None:
    environment = {
        "PATH": "/bin",
        "HEADRACE_NATS_URL": "nats://elsewhere",
        "HEADRACE_JOB": "x.0.1",
        "HEADRACE_ALLOCATOR_USAGE_PERIOD_MS": "100",
    }

    assert scrubbed(environment) == {"PATH": "/bin", "HEADRACE_ALLOCATOR_USAGE_PERIOD_MS": "100"}


def test_the_state_folder_is_where_the_user_says_or_where_state_belongs() -> None:
    assert state_folder({"HEADRACE_STATE": "/a/b"}) == Path("/a/b")
    assert state_folder({"XDG_STATE_HOME": "/x"}) == Path("/x/headrace")
    assert state_folder({"XDG_STATE_HOME": "relative"}) == state_folder({})
    assert state_folder({}).parts[-3:] == (".local", "state", "headrace")


def test_a_state_folder_without_a_server_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="headrace up"):
        find_place(state=tmp_path)


def test_an_address_wins_over_the_state_folder() -> None:
    place = find_place(environment={"HEADRACE_NATS_URL": "nats://far:1", "HEADRACE_CREDENTIAL_FILE": "/c"})

    assert (place.url, place.credential_file) == ("nats://far:1", "/c")


def test_spans_go_where_the_environment_says_else_where_the_folder_says(tmp_path: Path) -> None:
    (tmp_path / "endpoint.json").write_text('{"url": "nats://far:1", "traces": {"folder": "/traces"}}')

    assert find_place(state=tmp_path, environment={}).traces.folder == "/traces"
    chosen = find_place(state=tmp_path, environment={"HEADRACE_TRACE_ENDPOINT": "http://collector:4318"}).traces
    assert (chosen.endpoint, chosen.folder) == ("http://collector:4318", "")


def test_operation_ids_are_legal_and_sort_by_age() -> None:
    older, newer = new_operation_id(HandClock(1_700_000_000_999)), new_operation_id(HandClock(1_700_000_001_000))

    assert operation_id(older) == older
    assert older < newer


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_the_command_itself_begins_with(name: str) -> None:
    command = app[name]
    words = command.help or (command.default_command and command.default_command.__doc__) or ""

    assert words.startswith(COMMANDS[name][1])


@pytest.mark.parametrize("command", [get, volume, move, transfer])
def test_help_names_the_root_though_it_looks_like_markup(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    app(["pool", command.__name__, "--help"], result_action="return_value")

    assert command.__doc__ is not None
    assert capsys.readouterr().out.count("<Root>") == command.__doc__.count("<Root>") > 0


def test_nodes_that_name_no_tree_go_to_the_trees_in_turn() -> None:
    trees = parse_trees(["one", "two"])

    nodes = spread(parse_nodes(["a:cpu=1", "b:cpu=1,tree=one", "c", "d"]), trees)

    assert [(node.node, node.tree) for node in nodes] == [("a", "one"), ("b", "one"), ("c", "two"), ("d", "one")]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (["a"], "--tree: tree two has no node"),
        (["a", "b:tree=three"], "--node b: tree: 'three' cannot be used; expected a tree that is served: one, two"),
    ],
)
def test_a_tree_without_nodes_and_a_node_of_a_tree_that_is_not_served_are_refused(nodes: list[str], words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        spread(parse_nodes(nodes), parse_trees(["one", "two"]))

    assert words in str(refusal.value)


def test_a_pool_tree_is_read_with_what_is_different_there() -> None:
    assert parse_pool_trees(["one", "two:pool=vision,weight=2"], place="--pool-tree") == {
        "one": PerTree(),
        "two": PerTree(PoolName("vision"), 2.0),
    }


@pytest.mark.parametrize("text", ["one:cpu=1", "one:pool", "one:weight=0", "one:weight=x", "one:pool=a,pool=b", "a b"])
def test_a_pool_tree_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_pool_trees([text], place="--pool-tree")


@pytest.mark.parametrize("text", ["USR1", "sigusr1", "10"])
def test_a_signal_is_named_as_people_name_it(text: str) -> None:
    assert parse_signal(text, place="--interrupt-signal") is InterruptSignal.SIGUSR1


@pytest.mark.parametrize("text", ["KILL", "19", "sigwinch", "99"])
def test_a_signal_by_which_no_job_can_be_told_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="expected one of TERM, INT, HUP, QUIT, USR1, USR2, or the number of a signal"):
        parse_signal(text, place="--interrupt-signal")
