"""Cases of placement: the rules as the importer makes them, and the pools that admission then chooses."""

from __future__ import annotations

from typing import Any, Final
from xml.sax.saxutils import quoteattr

from headrace.ids import PoolName
from headrace.pools import Tree
from headrace.tree_file.problems import UnusableFile
from headrace_admission.decisions.pool_by_rules import Chosen, Rejected, StartFacts, pool_by_rules
from headrace_admission.state.rules import TreeRules, rules_of
from tests.conformance.reporting import Comparison, only_keys
from tests.support.yarn_files import translated, tree_of

__all__ = ["KEYS", "placement"]

KEYS: Final = {"xml", "cases", "leaf", "parent", "error"}


def placement(case: dict[str, Any]) -> list[Comparison]:
    """Holds the pool that an application gets against the queue that it gets in YARN."""
    configured = [*case.get("parent", []), *case.get("leaf", [])]
    try:
        found, _ = translated(f"<allocations>{_elements(configured, case)}{case['xml']}</allocations>")
    except UnusableFile as error:
        return [_compared(f"error ({error})", bool(case.get("error")), actual=True)]
    if case.get("error"):
        return [_compared("error", expected=True, actual=False)]
    tree = tree_of(found).tree
    paths = {PoolName(each.name): each.place for each in found.pools if each.place in configured}
    # The file has a queue that YARN makes where there is none, and a case does not.
    rules = rules_of(Tree(tree.tree, [pool for pool in tree.pools if pool.name in paths], tree.options))
    comparisons = []
    for each in case["cases"]:
        only_keys(each, {"requested", "user", "groups", "queue"}, "request")
        what = f"{each['user']} asks for {each['requested']}"
        comparisons.append(_compared(what, each["queue"], _queue(each, rules, paths)))
    return comparisons


def _elements(paths: list[str], case: dict[str, Any]) -> str:
    """The queues of a case as elements, each in its parent."""

    def inside(above: str) -> str:
        names = [path.rpartition(".")[2] for path in paths if path.rpartition(".")[0] == above]
        kinds = [' type="parent"' if f"{above}.{name}" in case.get("parent", []) else "" for name in names]
        return "".join(
            f"<queue name={quoteattr(name)}{kind}>{inside(f'{above}.{name}')}</queue>"
            for name, kind in zip(names, kinds, strict=True)
        )

    return inside("root")


def _queue(request: dict[str, Any], rules: TreeRules, paths: dict[PoolName, str]) -> str | None:
    """The path of the queue that YARN would have for the pool."""
    # Whoever names no pool has the queue `default` in YARN. A queue is known by its path there, and here by its name.
    named = "" if request["requested"] == "default" else request["requested"].rpartition(".")[2]
    found = pool_by_rules(rules.placement_rules, StartFacts(named, request["user"], request.get("groups")), rules.pools)
    match found:
        case Rejected(rule=rule, lacks_groups=lacks_groups):
            # In YARN it is an error that no rule decides, or that one asks for groups and there are none. Only `reject` rejects.
            return "ERROR" if lacks_groups or rule is None else None
        case Chosen(pool=pool, of_user=of_user):
            own = f".{request['user'].replace('.', '_dot_')}" if of_user else ""
            return f"{paths.get(pool, f'root.{pool}')}{own}"


def _compared(what: str, expected: object, actual: object) -> Comparison:
    return Comparison(what, str(expected), str(actual), expected == actual)
