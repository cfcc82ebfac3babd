"""Translate YARN's placement rules, and find the queues below which these rules place each user in a pool of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.errors import BadInput
from headrace.pools.placement_rules import PlacementRule, RuleName, misplaced, parse_rule
from headrace.tree_file.problems import FileProblem, Problems, shown
from headrace_cli.yarn.allocation_file import ROOT, AllocationFile, Rule
from headrace_cli.yarn.site_file import YarnSite

_NESTED: Final = "nestedUserQueue"
_NAMES: Final = {
    "specified": "specified",
    "user": "user",
    "primaryGroup": "primary_group",
    "secondaryGroupExistingQueue": "secondary_group",
    "default": "default",
    "reject": "reject",
}
#: Rules for which `create` has no meaning.
_WITHOUT_CREATE: Final = ("secondaryGroupExistingQueue", "reject")
_PLACE: Final = "queuePlacementPolicy"


@dataclass
class Placement:
    """The placement rules as the tree's option contains them, and the queues that must become hubs for these rules."""

    rules: list[str] = field(default_factory=list)
    #: Paths of the queues below which each user has a queue of their own.
    hubs: set[str] = field(default_factory=set)


def placement(file: AllocationFile, site: YarnSite | None, names: Mapping[str, str], problems: Problems) -> Placement:
    """Translate the rules of the file. If the file has no rules, translate the default rules of YARN.

    `names` gives the name of each queue's pool, by the path of the queue. Rules that cannot be translated are added to `problems`.
    """
    said = _without_rules(file, site or YarnSite()) if file.rules is None else file.rules
    rules = [each for rule in said if (each := _translated(rule, names, problems)) is not None]
    if len(rules) < len(said):
        return Placement()
    found = Placement([rule.text() for rule in rules])
    for wrong in misplaced(rules):
        rule = said[wrong.at]
        problems.found.append(FileProblem(rule.line, _PLACE, rule.name, wrong.wrong, wrong.expected))
    if not rules:
        problems.found.append(
            FileProblem(file.root.line, _PLACE, "", "has no rule", "default with create, or reject, as the last rule")
        )
    for rule in said:
        if rule.inner is not None:
            found.hubs |= _parents(file, rule.inner)
    return found


def _translated(rule: Rule, names: Mapping[str, str], problems: Problems) -> PlacementRule | None:
    """Return Headrace's equivalent of a rule of the file. If there is no equivalent, add a problem and return None."""
    inner = rule.inner or rule
    if inner.name not in _NAMES:
        wrong, expected = f"{inner.name!r} is not a rule", f"one of {', '.join((*_NAMES, _NESTED))}"
        problems.found.append(FileProblem(inner.line, _PLACE, inner.name, wrong, expected))
        return None
    path = _path(inner.queue)
    is_root = inner.name == "default" and path == ROOT
    if is_root and rule.inner is None:
        wrong, expected = "root runs no operations itself", "a queue below it, such as root.default, or the rule reject"
        problems.found.append(FileProblem(inner.line, _PLACE, inner.queue, wrong, expected))
        return None
    if is_root:
        # In YARN, this rule places an operation in a queue of its user, directly below the root.
        return PlacementRule(RuleName.USER, existing=not rule.create)
    words = ["nested_user", *([] if rule.create else ["existing"])] if rule.inner is not None else []
    words.append(_NAMES[inner.name])
    if inner.name == "default" and inner.queue:
        words.append(names.get(path) or path.rpartition(".")[2])
    words += [] if inner.create or inner.name in _WITHOUT_CREATE else ["existing"]
    try:
        return parse_rule(" ".join(words), _PLACE)
    except BadInput as error:
        wrong = f"{shown(inner.queue)} cannot be used"
        problems.found.append(FileProblem(inner.line, _PLACE, inner.queue, wrong, error.expected))
        return None


def _parents(file: AllocationFile, inner: Rule) -> set[str]:
    """Return the queues below which a nested rule may place users. The rule skips declared queues without children, as in YARN."""
    default = _path(inner.queue) if inner.name == "default" else ""
    return {
        each.path
        for each in file.root.all()
        if (each.path == default or (not default and each.is_declared and each.path != ROOT))
        and (each.is_inner or "reservation" in each.values or not each.is_declared)
    }


def _without_rules(file: AllocationFile, site: YarnSite) -> list[Rule]:
    line, create = file.root.line, site.undeclared
    rules = [Rule("specified", line, create, "", None)]
    if site.user_queues:
        rules.append(Rule("user", line, create, "", None))
    return rules if site.user_queues and create else [*rules, Rule("default", line, True, "", None)]


def _path(queue: str) -> str:
    """Return the full path of a queue. A rule may name the queue with or without `root.` in front."""
    queue = queue or "default"
    return queue if queue == ROOT or queue.startswith(f"{ROOT}.") else f"{ROOT}.{queue}"
