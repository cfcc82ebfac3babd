"""Cases of allocation files: what the importer makes of them, in a tree that has its pools and options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    tree = _Effective(file, found, case.get("effective", ()))
    for path, expected in case.get("effective", {}).items():
        only_keys(expected, set(tree.readers), f"effective {path}")
        comparisons += [_compared(f"{path} {key}", *tree.compared(path, key, value)) for key, value in expected.items()]
    return comparisons


class _Effective:
    """A tree as the importer would make it."""

    def __init__(self, file: AllocationFile, found: Imported, paths: Iterable[str]) -> None:
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
        names = {each.place: PoolName(each.name) for each in found.pools} | {ROOT: ROOT_POOL}
        for path in sorted(paths):
            # A queue that the file does not have is made at run time, and so is the pool.
            if path not in names:
                above = names[next(place for place in _above(path) if place in names)]
                config = next((pool.settings for pool in pools if pool.name == above), PoolConfig())
                names[path] = PoolName(path)
                pools.append(Pool(names[path], above, _made_below(config)))
        options = {key: value for key, value in found.options.items() if value is not None}
        tree = PoolTree(Tree(TreeName("default"), pools, TREE_ATTRIBUTES.changed(TreeOptions(), options).value))
        effective = effective_options_of(tree, pools)
        self._tree = tree
        self._names = names
        self._options = dict(zip([ROOT_POOL, *(pool.name for pool in pools)], effective, strict=True))
        self.readers: dict[str, Callable[[str, Any], tuple[object, object]]] = {
            "min_timeout": lambda path, want: (want, _timeout(self._of(path).min_share_preemption_timeout_ms)),
            "fair_timeout": lambda path, want: (want, _timeout(self._of(path).fair_share_starvation_timeout_ms)),
            "threshold": lambda path, want: (want, self._of(path).fair_share_starvation_tolerance),
            "preemptable": lambda path, want: (want, self._of(path).preemption is not PreemptionSwitch.OFF),
            # None is the weight 1 of a pool without a guarantee.
            "weight": lambda path, want: (want, 1.0 if (own := self._settings(path).weight) is None else own),
            "policy": lambda path, want: (want, self._policy(path)),
            "min": lambda path, want: (want, self._amounts(path, "strong_guarantee_resources", 0)),
            "max": self._most,
            "max_apps": self._most_apps,
            # Neither has a counterpart: what the file says is read all the same, or the warning would be of something else.
            "max_child": lambda path, want: (want, self._of_children(path)),
            "am_share": lambda path, want: (want, self._said(path, "maxAMShare", 0.5)),
        }

    def compared(self, path: str, key: str, expected: Any) -> tuple[object, object]:
        """What is expected, and what the tree has."""
        return self.readers[key](path, expected)

    def _of(self, path: str) -> EffectiveOptions:
        return self._options[self._names[path]]

    def _settings(self, path: str) -> PoolConfig:
        return self._tree.settings(self._names[path])

    def _policy(self, path: str) -> str:
        name = self._names[path]
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

    def _said(self, path: str, key: str, missing: Any) -> Any:
        return self._queues[path].get(key, missing) if path in self._queues else missing

    def _of_children(self, path: str) -> list[int] | None:
        amounts = self._said(path, "maxChildResources", None)
        if amounts is None:
            return None
        found = amounts.of(Resources())
        return [found["memory"] // _MIB, found["cpu"] // 100]


def _made_below(above: PoolConfig) -> PoolConfig:
    """The settings of a pool that is made below one of these."""
    config = above.ephemeral_subpool_config
    if config is None:
        return PoolConfig()
    return PoolConfig(
        mode=config.mode,
        max_running_operation_count=config.max_running_operation_count,
        resource_limits=config.resource_limits,
    )


def _above(path: str) -> list[str]:
    """The paths of all queues above one, the next one first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


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
