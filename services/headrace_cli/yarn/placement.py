"""Finds what rules of placement become here. A named pool is always used, and one option says where those of users come into being."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headrace.tree_file.problems import FileProblem, Problems
from headrace_cli.yarn.allocation_file import ROOT, AllocationFile, Queue, Rule
from headrace_cli.yarn.site_file import YarnSite
from headrace_cli.yarn.warnings import Warnings

_GROUPS: Final = ("primaryGroup", "secondaryGroupExistingQueue")
_NAMES: Final = ("specified", "user", *_GROUPS, "nestedUserQueue", "default", "reject")
_PLACE: Final = "queuePlacementPolicy"


@dataclass
class Placement:
    """Queues that have a part in where operations come that name no pool."""

    #: The queue below which pools of users come into being.
    default_parent: str = ROOT
    #: Queues with a queue for each user.
    hubs: set[str] = field(default_factory=set)


def placement(file: AllocationFile, site: YarnSite | None, problems: Problems, warnings: Warnings) -> Placement:
    """Reads the rules, or those that YARN has without any. Adds to `problems` and `warnings`."""
    rules = _without_rules(file, site or YarnSite()) if file.rules is None else file.rules
    _judge(rules, problems)
    found = Placement()
    queues = {queue.path: queue for queue in file.root.all()}
    if not any(rule.name == "specified" for rule in rules):
        line = rules[0].line if rules else file.root.line
        warnings.say(
            "W20", line, _PLACE, "without the rule specified a queue that is asked for is passed over; here it is used"
        )
    is_placed = False
    for rule in rules:
        if rule.name in _GROUPS:
            words = f"{rule.name}: groups of users are not known here; operations name their pool"
            warnings.say("W20", rule.line, _PLACE, words)
        elif rule.name == "reject":
            words = "reject: here a pool comes into being for it; `require_specified_pools_existence` of admission refuses it"
            warnings.say("W20", rule.line, _PLACE, words)
        elif rule.name != "specified" and not is_placed:
            is_placed = _place(rule, found, queues, warnings)
    return found


def _place(rule: Rule, found: Placement, queues: dict[str, Queue], warnings: Warnings) -> bool:
    """Makes a rule the one that says where unnamed operations go. True if it places every one of them."""
    if rule.name == "user":
        if not rule.create:
            words = 'user create="false": here a pool comes into being for each user who names none'
            warnings.say("W20", rule.line, _PLACE, words)
        return True
    if rule.name == "nestedUserQueue":
        assert rule.inner is not None, "read so"
        return _nest(rule, rule.inner, found, queues, warnings)
    target = _path(rule.queue)
    if target not in queues:
        words = f"default: the file has no {target}; pools of users come into being below the root"
        warnings.say("W20", rule.line, _PLACE, words)
        return True
    found.default_parent = target
    words = f"default: an operation that names no pool runs in one of its user, which comes into being below {target}"
    warnings.say("W20", rule.line, _PLACE, words)
    return True


def _nest(rule: Rule, inner: Rule, found: Placement, queues: dict[str, Queue], warnings: Warnings) -> bool:
    target = _path(inner.queue)
    if inner.name == "default" and target in queues:
        queue = queues[target]
        if not queue.children and not queue.is_parent and "reservation" not in queue.values:
            return False  # YARN passes on, too
        found.hubs.add(target)
        found.default_parent = target
        return True
    found.hubs |= {queue.path for queue in queues.values() if queue.is_parent and not queue.children}
    words = f"nestedUserQueue over {inner.name}: only operations that name a pool get one of their user below it here"
    warnings.say("W20", rule.line, _PLACE, words)
    return False


def _without_rules(file: AllocationFile, site: YarnSite) -> list[Rule]:
    line, create = file.root.line, site.undeclared
    rules = [Rule("specified", line, create, "", None)]
    if site.user_queues:
        rules.append(Rule("user", line, create, "", None))
    return rules if site.user_queues and create else [*rules, Rule("default", line, True, "", None)]


def _judge(rules: list[Rule], problems: Problems) -> None:
    """Adds unknown rules, rules behind one that ends the list, and a list without an end."""
    ended: Rule | None = None
    for rule in (each for outer in rules for each in (outer, outer.inner) if each is not None):
        if rule.name not in _NAMES:
            wrong = f"{rule.name!r} is no rule"
            problems.found.append(FileProblem(rule.line, _PLACE, rule.name, wrong, f"one of {', '.join(_NAMES)}"))
    for rule in rules:
        if ended is not None:
            wrong = f"{rule.name} is never reached: {ended.name} on line {ended.line} ends the list"
            problems.found.append(FileProblem(rule.line, _PLACE, rule.name, wrong, "it before that one, or not at all"))
        elif rule.name in ("default", "reject") or (rule.name in ("user", "primaryGroup") and rule.create):
            ended = rule
    if rules and ended is None:
        wrong = f"the list ends with {rules[-1].name}, which may pass on"
        expected = "default or reject at its end"
        problems.found.append(FileProblem(rules[-1].line, _PLACE, rules[-1].name, wrong, expected))


def _path(queue: str) -> str:
    """The path of a queue that a rule names, with or without root."""
    queue = queue or "default"
    return queue if queue == ROOT or queue.startswith(f"{ROOT}.") else f"{ROOT}.{queue}"
