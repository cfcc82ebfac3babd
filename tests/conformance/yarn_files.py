"""Cases of allocation files: what the importer makes of them, in a tree that has its pools and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import (
    POOL_ATTRIBUTES,
    TREE_ATTRIBUTES,
    Pool,
    PoolConfig,
    PoolMode,
    PoolTree,
    Tree,
    TreeOptions,
)
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import Resources
from headrace.tree_file.problems import Problems, UnusableFile
from headrace_cli.yarn.allocation_file import NEVER_MS, ROOT, AllocationFile, Queue, read_allocation_file
from headrace_cli.yarn.translation import Imported, imported
from headrace_cli.yarn.warnings import Warnings
from headrace_fair_share.facts.pool_inputs import effective_options_of
from tests.conformance.reporting import Comparison, only_keys

__all__ = ["KEYS", "allocation_file"]

KEYS: Final = {"xml", "effective", "leaf", "parent", "user_max_apps", "error"}
_MIB: Final = 2**20
#: As many as a Java int holds.
_ALL_APPS: Final = 2**31 - 1


def allocation_file(case: dict[str, Any]) -> list[Comparison]:
    """Holds the pools and options of a file against what YARN has in force."""
    problems, warnings = Problems("fair-scheduler.xml"), Warnings("fair-scheduler.xml")
    try:
        file = read_allocation_file(case["xml"].encode(), problems, warnings)
        found = imported(file, None, Resources(1_000, 100_000, 0, 2**40), problems, warnings)
    except UnusableFile as error:
        return [_compared(f"error ({error})", bool(case.get("error")), actual=True)]
    if case.get("error"):
        # Files that older releases read are imported, with a warning that says so.
        return [_compared("error", expected=True, actual=any(each.yarn_refuses for each in warnings.found))]
    comparisons = [
        *_shape(case, file),
        *(
            _compared(f"limit of {user}", most, _most_of_user(file, user))
            for user, most in case.get("user_max_apps", {}).items()
        ),
    ]
    tree = _Effective(file, found)
    for path, expected in case.get("effective", {}).items():
        only_keys(expected, set(tree.readers), f"effective {path}")
        comparisons += [_compared(f"{path} {key}", *tree.compared(path, key, value)) for key, value in expected.items()]
    return comparisons


class _Effective:
    """A tree as the importer would make it."""

    def __init__(self, file: AllocationFile, found: Imported) -> None:
        self._queues = {queue.path: queue for queue in file.root.all()}
        self._file = file
        pools = [
            Pool(
                PoolName(each.name),
                PoolName(each.parent),
                POOL_ATTRIBUTES.changed(PoolConfig(), each.attributes).value,
            )
            for each in found.pools
        ]
        options = {key: value for key, value in found.options.items() if value is not None}
        tree = PoolTree(Tree(TreeName("default"), pools, TREE_ATTRIBUTES.changed(TreeOptions(), options).value))
        effective = effective_options_of(tree, pools)
        self._tree = tree
        self._names = {each.place: PoolName(each.name) for each in found.pools} | {ROOT: ROOT_POOL}
        self._options = dict(zip([ROOT_POOL, *(pool.name for pool in pools)], effective, strict=True))
        self.readers: dict[str, Callable[[str, Any], tuple[object, object]]] = {
            "min_timeout": lambda path, want: (want, _timeout(self._of(path).min_share_preemption_timeout_ms)),
            "fair_timeout": lambda path, want: (want, _timeout(self._of(path).fair_share_starvation_timeout_ms)),
            "threshold": lambda path, want: (want, self._of(path).fair_share_starvation_tolerance),
            "preemptable": lambda path, want: (want, self._of(path).preemption is not PreemptionSwitch.OFF),
            "weight": lambda path, want: (want, self._settings(path).weight),
            "policy": lambda path, want: (want, self._policy(path)),
            "min": lambda path, want: (want, self._amounts(path, "strong_guarantee_resources", 0)),
            "max": self._most,
            "max_apps": self._most_apps,
            # Neither has a counterpart: what the file says is read all the same, or the warning would be of something else.
            "max_child": lambda path, want: (want, self._of_children(path)),
            "am_share": lambda path, want: (want, self._queues[path].get("maxAMShare", 0.5)),
        }

    def compared(self, path: str, key: str, expected: Any) -> tuple[object, object]:
        """What is expected, and what the tree has."""
        return self.readers[key](path, expected)

    def _of(self, path: str) -> EffectiveOptions:
        return self._options[self._names[path]]

    def _settings(self, path: str) -> PoolConfig:
        return self._tree.settings(self._names[path])

    def _policy(self, path: str) -> str:
        # A queue that the file does not have would come into being below the root.
        name = self._names.get(path, ROOT_POOL)
        if self._tree.mode(name) is PoolMode.FIFO:
            return "fifo"
        return "fair" if self._options[name].yarn_memory_only else "drf"

    def _amounts(self, path: str, name: str, missing: int | None) -> list[int | None]:
        amounts = getattr(self._settings(path), name).named()
        return [amounts[key] // unit if key in amounts else missing for key, unit in (("memory", _MIB), ("cpu", 100))]

    def _most(self, path: str, want: Any) -> tuple[object, object]:
        most = self._amounts(path, "resource_limits", None)
        if want == "unbounded":
            return [None, None], most
        # A maximum below the minimum is raised to it, in force.
        least = self._amounts(path, "strong_guarantee_resources", 0)
        return [max(one or 0, other or 0) for one, other in zip(want, least, strict=True)], most

    def _most_apps(self, path: str, want: int) -> tuple[object, object]:
        own = self._settings(path).max_running_operation_count
        most = self._tree.options.max_running_operation_count_per_pool if own is None else own
        every = self._tree.options.max_operation_count_per_pool
        return every if want == _ALL_APPS else want, most

    def _of_children(self, path: str) -> list[int] | None:
        amounts = self._queues[path].get("maxChildResources")
        if amounts is None:
            return None
        found = amounts.of(Resources())
        return [found["memory"] // _MIB, found["cpu"] // 100]


def _shape(case: dict[str, Any], file: AllocationFile) -> list[Comparison]:
    """Leaves and parents, without the root and the queue that is there in any case."""
    always = {ROOT, f"{ROOT}.default"}
    leaves = {queue.path for queue in file.root.all() if _is_leaf(queue)}
    parents = {queue.path for queue in file.root.all()} - leaves
    found = {"leaf": leaves, "parent": parents}
    return [
        _compared(key, sorted(set(case[key]) - always), sorted(paths - always))
        for key, paths in found.items()
        if key in case
    ]


def _is_leaf(queue: Queue) -> bool:
    return not (queue.children or queue.is_parent or "reservation" in queue.values)


def _most_of_user(file: AllocationFile, user: str) -> object:
    return file.users[user].value if user in file.users else file.get("userMaxAppsDefault")


def _timeout(ms: int | None) -> object:
    return "infinite" if ms is None or ms >= NEVER_MS else ms


def _compared(what: str, expected: object, actual: object) -> Comparison:
    return Comparison(what, str(expected), str(actual), expected == actual)
