"""Cases of YARN's FairScheduler, each kind with its own adapter. Memory is in MB there, and cores are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from headrace.errors import BadInput
from headrace.resources import LARGEST_SUM, RESOURCE_NAMES, Resources
from headrace_cli.yarn.amounts import read_amounts
from headrace_fair_share.hdrf.arrays import RESOURCES, Ints
from headrace_fair_share.hdrf.input_arrays import laid_out
from headrace_fair_share.hdrf.model import PoolInput
from headrace_fair_share.yarn.division import divided
from headrace_fair_share.yarn.tree_division import Sharers, active_elements, tree_division
from tests.conformance import yarn_files, yarn_placement
from tests.conformance.engines import Engine
from tests.conformance.reporting import Comparison, Outcome, Problem, Status, only_keys
from tests.conformance.watched import plain
from tests.conformance.yarn_files import allocation_file
from tests.conformance.yarn_placement import placement
from tests.conformance.yarn_timelines import gate, order, timeline

__all__ = ["KINDS", "SUITE", "run"]

SUITE: Final = "yarn"
_REMARKS: Final = {"id", "kind", "origin", "source", "note"}
_MIB: Final = 2**20
_MEMORY, _CPU = RESOURCE_NAMES.index("memory"), RESOURCE_NAMES.index("cpu")
_PLACES: Final = (_MEMORY, _CPU)


def _fair_share(case: dict[str, Any]) -> list[Comparison]:
    sharers = case["schedulables"]
    for each in sharers:
        only_keys(each, {"min", "max", "weight", "active"}, "schedulable")

    def column(key: str, default: float, kind: type) -> np.ndarray[Any, Any]:
        return np.array([each.get(key, default) for each in sharers], kind)

    shares = divided(
        np.array([case["total"]]),
        np.zeros(len(sharers), np.int64),
        column("weight", 1.0, float),
        column("min", 0, int),
        column("max", LARGEST_SUM, int),
        column("active", True, bool),
    )
    return [_compared("shares", case["shares"], shares.tolist())]


class _Queues:
    """The queues of a tree, parents first, as the division takes them."""

    def __init__(self, case: dict[str, Any]) -> None:
        only_keys(case.get("defaults", {}), {"policy"}, "defaults")
        self._default = case.get("defaults", {}).get("policy", "fair")
        self._queues = list(_all_queues(case["queues"], "root", -1))
        # An application that may run makes its queue active.
        paths = [path for path, _, _ in self._queues]
        self._busy = {path for path, runs in (_app(app, paths) for app in case.get("apps", ())) if runs}
        self._layout = laid_out(
            [PoolInput(name=str(place), parent=above) for place, (_, above, _) in enumerate(self._queues[1:])], []
        )
        self._total = np.zeros(RESOURCES, np.int64)
        self._total[list(_PLACES)] = case["cluster"]

    def shares(self, *, steady: bool) -> dict[str, list[int]]:
        """Memory and cores of each queue."""
        size, at = self._layout.size, np.concatenate(([0], self._layout.of_pool))
        least, most = np.zeros((RESOURCES, size), np.int64), np.full((RESOURCES, size), LARGEST_SUM)
        weight, memory_only, running = np.ones(size), np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        for place, (path, _, queue) in zip(at.tolist(), self._queues, strict=True):
            only_keys(queue, {"name", "children", "active", "weight", "min", "max", "policy"}, "queue")
            weight[place] = queue.get("weight", 1.0)
            memory_only[place] = queue.get("policy", self._default) == "fair"
            running[place] = queue.get("active", path in self._busy) or steady
            for resource, index in zip(_PLACES, range(2), strict=True):
                least[resource, place] = queue.get("min", (0, 0))[index]
                most[resource, place] = queue.get("max", (LARGEST_SUM, LARGEST_SUM))[index]
        nothing = np.zeros(size, np.int64)
        sharers = Sharers(
            weight, least, most, active_elements(self._layout, running), nothing > 0, memory_only, nothing
        )
        shares: Ints = tree_division(self._layout, self._total, sharers)
        return {
            path.removeprefix("root."): shares[list(_PLACES), place].tolist()
            for (path, _, _), place in zip(self._queues, at.tolist(), strict=True)
        }


def _app(app: dict[str, Any], paths: list[str]) -> tuple[str, bool]:
    """The queue of an application, and whether it may run."""
    only_keys(app, {"id", "queue", "start", "runnable", "requests", "containers", "priority"}, "app")
    for key in ("start", "requests", "containers", "priority"):
        # Queues are shared out by none of them. In FairScheduler the priority of every application is 1, whatever it was submitted with.
        plain(app.get(key))
    if app["queue"] not in paths:
        raise Problem(f"there is no queue {app['queue']}")
    return app["queue"], app.get("runnable", True)


def _all_queues(queue: dict[str, Any], path: str, above: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Every queue with its path and the place of its parent, level by level."""
    level = [(path, above, queue)]
    count = -1
    while level:
        below: list[tuple[str, int, dict[str, Any]]] = []
        for here in level:
            yield here
            names = ((f"{here[0]}.{child['name']}", count, child) for child in here[2].get("children", []))
            below.extend(names)
            count += 1
        level = below


def _fair_share_tree(case: dict[str, Any]) -> list[Comparison]:
    tolerance, found = case.get("tolerance", 0.5), []
    for which in ("instantaneous", "steady"):
        if which in case:
            shares = _Queues(case).shares(steady=which == "steady")
            for path, expected in case[which].items():
                if path not in shares:
                    raise Problem(f"there is no queue {path}")
                close = [
                    want is None or abs(want - got) <= tolerance
                    for want, got in zip(expected, shares[path], strict=True)
                ]
                found.append(Comparison(f"{which} {path}", str(expected), str(shares[path]), all(close)))
    return found


def _resource_value(case: dict[str, Any]) -> list[Comparison]:
    memory, cores = case.get("cluster", (0, 0))
    total = Resources(0, cores * 100, 0, memory * _MIB)
    try:
        found = read_amounts(case["text"], "text").of(total)
    except BadInput:
        return [_compared("error", bool(case.get("error")), actual=True)]
    if case.get("error"):
        return [_compared("error", expected=True, actual=False)]
    # Without a limit a pool may have the whole cluster, of which a percentage is a part.
    missing = [case["missing"]] * 2 if "missing" in case else case.get("cluster", [2**63 - 1] * 2)
    figures = [found[name] // unit if name in found else None for name, unit in (("memory", _MIB), ("cpu", 100))]
    actual = [other if figure is None else figure for figure, other in zip(figures, missing, strict=True)]
    return [_compared("value", case["value"], actual)]


def _compared(what: str, expected: object, actual: object) -> Comparison:
    return Comparison(what, str(expected), str(actual), expected == actual)


#: By kind: the adapter, and the keys that it reads.
KINDS: Final[dict[str, tuple[Callable[[dict[str, Any]], list[Comparison]], set[str]]]] = {
    "fair_share": (_fair_share, {"total", "schedulables", "resource", "shares"}),
    "fair_share_tree": (
        _fair_share_tree,
        {"queues", "cluster", "defaults", "apps", "instantaneous", "steady", "tolerance"},
    ),
    "allocation_file": (allocation_file, yarn_files.KEYS),
    "placement": (placement, yarn_placement.KEYS),
    "order": (order, {"policy", "cluster", "first", "second", "sign"}),
    "gate": (gate, {"used", "cluster", "conf", "open"}),
    "timeline": (timeline, {"engine", "setup", "steps"}),
    "resource_value": (_resource_value, {"text", "cluster", "missing", "value", "error"}),
}


def run(case: dict[str, Any], engine: Engine) -> Outcome:
    """One case of any kind. All engines of fair share stand beside it: there is one way to divide as YARN does."""
    if "id" not in case or "kind" not in case:
        raise Problem("a case without an id or a kind")
    name, kind = str(case["id"]), str(case["kind"])
    if kind not in KINDS:
        return Outcome(SUITE, name, Status.UNSUPPORTED, detail=f"kind {kind} is not supported yet")
    adapter, keys = KINDS[kind]
    only_keys(case, keys | _REMARKS, "case")
    return Outcome.of(SUITE, name, adapter(case))
