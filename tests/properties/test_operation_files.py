"""Files of operations: `run --spec` makes the spec that `op get --spec` has written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.ids import OperationId, PoolName, TreeName
from headrace.job_tasks import with_tasks
from headrace.pools.amounts import PartialResources
from headrace.resources import Resources
from headrace.tree_file.pools import as_yaml
from headrace.wire.files import Archive
from headrace.wire.operation_spec import OnLostNode, OperationSpec, PerTree, PreemptionMode, Upstream, UpstreamEnd
from headrace.wire.plain_values import indented_json
from headrace.wire.preemption import InterruptSignal
from headrace.wire.tasks import Task, ranges_of
from headrace_cli.command_line import app
from headrace_cli.commands.operations.operation_file import as_file
from headrace_cli.commands.operations.run import spec_of_options
from headrace_cli.commands.operations.spec_option import opened_file
from headrace_cli.show.screen import harmless_json

_OF_SEVERAL_TREES = ("pool_trees", "tentative_pool_trees", "scheduling_options_per_pool_tree")
_NAMES = st.sampled_from(["a", "gpu", "x-1", "007", "no", "null", "1e3"])
_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8) | st.sampled_from(
    ["0.10", "+5", "true", "~", "<<", "-n", "--spec", "--", "a: b", "# c", "'", '"', "{}", " x ", "[1]", "*a", "a\nb"]
)
_MS = st.sampled_from([1, 500, 999, 1000, 60_000, 90_000, 86_400_000, 10**12]) | st.integers(1, 10**12)
_FROM_0_MS = st.just(0) | _MS
_AMOUNTS = st.integers(0, 2**50)
_PARTS = st.builds(PartialResources, *[st.none() | _AMOUNTS] * 5)
_FLAGS = st.booleans()


def _or(default: object, others: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.just(default) | others


@st.composite
def specs(draw: st.DrawFn) -> OperationSpec:
    jobs = draw(st.integers(1, 9))
    trees = draw(st.lists(_NAMES.map(TreeName), max_size=3, unique=True))
    in_tree = st.builds(PerTree, _or("", _NAMES.map(PoolName)), _or(None, st.floats(1e-8, 1e8)))
    optional = {
        "resources": st.builds(Resources, st.integers(0, 2), _AMOUNTS, _AMOUNTS, _AMOUNTS, st.integers(0, 2)),
        "environment": st.dictionaries(_or("NAME", _TEXTS), _TEXTS, max_size=2),
        "working_directory": st.sampled_from(["/", "/tmp/x y", "//x", "here", "/a/../b", "/-"]),
        "title": _TEXTS,
        "weight": st.floats(1e-8, 1e8),
        "max_failed_job_count": st.sampled_from([1, 10, 1_000_000]),
        "tries": st.integers(0, 1000),
        "keep_going": _FLAGS,
        "on_lost_node": st.sampled_from(OnLostNode),
        "retry_backoff_ms": _FROM_0_MS,
        "longest_retry_backoff_ms": _FROM_0_MS,
        "interruption_timeout_ms": st.sampled_from([0, 1, 5000, 10_000]),
        "log_cap_bytes": st.integers(0, 2**40),
        "type": _NAMES,
        "tree": _NAMES.map(TreeName),
        "is_gang": _FLAGS,
        "resource_limits": _PARTS,
        "pool_trees": st.just(trees),
        "tentative_pool_trees": st.lists(_NAMES.map(TreeName), max_size=2),
        "ignore_missing_tentative_trees": _FLAGS,
        "scheduling_options_per_pool_tree": st.dictionaries(st.sampled_from([*trees, "other"]), in_tree, max_size=3),
        "erase_trees_with_pool_limit_violations": _FLAGS,
        "require_specified_pools_existence": _FLAGS,
        "preemption_mode": st.sampled_from(PreemptionMode),
        "interruptible": _FLAGS,
        "interrupt_signal": st.sampled_from(InterruptSignal),
        "allocation_preemption_timeout_ms": st.sampled_from([None, 0, 5000, 10_000]),
        "allocation_graceful_preemption_timeout_ms": st.sampled_from([None, 0, 5000, 10_000]),
        "fair_share_starvation_tolerance": st.floats(0, 1),
        "fair_share_starvation_timeout_ms": _FROM_0_MS,
        "non_preemptible_resource_usage_threshold": _PARTS,
        "max_unpreemptible_allocation_count": st.just(0),
        "resource_limits_overcommit_tolerance": _PARTS,
        "scheduling_tag_filter": st.sampled_from(["ssd", "ssd & !old"]),
        "waiting_for_resources_on_node_timeout_ms": _FROM_0_MS,
        "first_job_is_master": _FLAGS,
        "files": st.just(Archive("0" * 64, 7, 2)),
        "indexes": st.just(f"5-{4 + jobs}"),
        "lines": st.lists(_TEXTS, min_size=1, max_size=3),
        "output": _TEXTS,
        "error": _TEXTS,
        "stdin": _TEXTS,
        "rerun_of": _NAMES,
        "after": st.lists(st.builds(Upstream, _NAMES.map(OperationId), st.sampled_from(UpstreamEnd)), max_size=2),
        "after_each": _NAMES.map(OperationId),
        "time_limit_ms": _MS,
        "operation_time_limit_ms": _MS,
        "retry_on": st.sampled_from(["75", "75,100-120,SIGTERM,oom"]),
        "no_retry_on": st.sampled_from(["2", "oom"]),
        "suspend_on_failure": _FLAGS,
        "memory_on_oom": st.sampled_from(["x2", "x1.5", "1024T"]),
        "terminal": _FLAGS,
        "tasks": st.lists(
            st.builds(
                Task,
                _NAMES,
                st.lists(_TEXTS, min_size=1, max_size=3),
                st.integers(1, 3),
                st.builds(Resources, st.integers(1, 2), st.integers(1, 3), *[st.integers(0, 3)] * 3),
                st.dictionaries(_NAMES, _TEXTS, max_size=2),
                is_gang=_FLAGS,
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda task: task.name,
        ),
        "image": st.sampled_from(["ubuntu:24.04", "docker://ubuntu", "/images/a.sif"]),
    }
    own = {"pool", "argv", "job_count", "trace"}
    assert own | set(optional) == set(OperationSpec.__struct_fields__), "give a new field of the spec values here"
    chosen = draw(st.sets(st.sampled_from(sorted(optional))))
    if "tasks" in chosen:
        chosen -= {
            "indexes",
            "lines",
            "resources",
            "terminal",
            "after_each",
            "memory_on_oom",
            *_OF_SEVERAL_TREES,
        }
    if "memory_on_oom" in chosen:
        chosen -= {"is_gang", "after_each", "no_retry_on", *_OF_SEVERAL_TREES}
        chosen |= {"resources"}
    given_fields = {name: draw(optional[name]) for name in sorted(chosen)}
    tasks = given_fields.pop("tasks", [])
    argv = ["/bin/sh", *draw(st.lists(_TEXTS, max_size=4))]
    pool = draw((st.just("") | _NAMES).map(PoolName))
    if "memory_on_oom" in given_fields:
        size = given_fields["resources"]
        given_fields["resources"] = msgspec.structs.replace(size, memory=max(size.memory, 1))
    spec = OperationSpec(pool, argv, job_count=jobs, **given_fields)
    if tasks and draw(_FLAGS):
        tasks = [msgspec.structs.replace(t, first_index=r.start) for t, r in zip(tasks, ranges_of(tasks), strict=True)]
        spec = msgspec.structs.replace(spec, indexes=f"0-{sum(task.job_count for task in tasks) - 1}")
    return msgspec.convert(msgspec.to_builtins(with_tasks(spec, tasks) if tasks else spec), OperationSpec)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "operation.yaml"


def _read(path: Path, *words: str) -> OperationSpec:
    _, bound, _ = app.parse_args(["run", "--spec", str(path), *words], exit_on_error=False, print_error=False)
    options = {name: value for name, value in bound.arguments.items() if name not in ("wait_options", "common")}
    return spec_of_options(options.pop("command", ()), options.pop("pool", None), **options, file=opened_file(path))


@given(specs(), st.booleans())
def test_a_file_starts_exactly_the_operation_that_it_was_written_for(
    path: Path, spec: OperationSpec, as_json: bool
) -> None:
    written = as_file(spec)
    path.write_text(harmless_json(indented_json(written)) if as_json else as_yaml(written))
    assert _read(path) == spec


@given(specs())
def test_options_override_the_file(path: Path, spec: OperationSpec) -> None:
    file = as_file(spec)
    assume(not spec.tasks)
    assume("environment" not in file.get("fields", {}))
    path.write_text(as_yaml(file))
    mine = {"argv": ["true"], "title": "mine", "resources": msgspec.structs.replace(spec.resources, cpu=700)}
    environment = {**spec.environment, "NAME": "1"}
    read = _read(path, "--cpu", "7", "--title", "mine", "--env", "NAME=1", "--", "true")
    assert read == msgspec.structs.replace(spec, **mine, environment=environment)
