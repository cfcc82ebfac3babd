"""Reads fair-scheduler.xml into queues and values, each with its line. Says what cannot be read, and does not interpret the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.durations import LONGEST_MS
from headrace.errors import BadInput
from headrace.ids import pool_name
from headrace.pools.pool_config import LARGEST_WEIGHT
from headrace.tree_file.problems import FileProblem, Problems, shown
from headrace_cli.yarn.amounts import read_amounts
from headrace_cli.yarn.elements import Element, read_elements
from headrace_cli.yarn.warnings import Warnings

TOP: Final = "allocations"
ROOT: Final = "root"
#: Longer than anybody waits: what YARN calls an infinite timeout.
NEVER_MS: Final = 10_000 * 86_400_000
_QUEUES: Final = ("queue", "pool")
_LARGEST_COUNT: Final = 2**31 - 1


@dataclass(frozen=True)
class Said:
    """A value of the file."""

    value: Any
    line: int


@dataclass(frozen=True)
class Users:
    """Names of a list of access."""

    users: tuple[str, ...]
    groups: tuple[str, ...]

    @property
    def is_everybody(self) -> bool:
        """True if the list is open."""
        return "*" in (*self.users, *self.groups)


@dataclass(frozen=True)
class Rule:
    """A rule of placement."""

    name: str
    line: int
    create: bool
    queue: str
    inner: Rule | None


@dataclass
class Queue:
    """A queue with the values that the file gives it."""

    path: str
    line: int
    is_parent: bool = False
    #: False for the one that YARN makes where the file has none.
    is_declared: bool = True
    values: dict[str, Said] = field(default_factory=dict)
    children: dict[str, Queue] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def get(self, key: str, default: Any = None) -> Any:
        """A value of the queue itself."""
        return self.values[key].value if key in self.values else default

    def all(self) -> Iterator[Queue]:
        """The queue and all below it, parents first."""
        yield self
        for child in self.children.values():
            yield from child.all()


@dataclass
class AllocationFile:
    """The whole file."""

    root: Queue
    #: Values for all queues.
    values: dict[str, Said] = field(default_factory=dict)
    users: dict[str, Said] = field(default_factory=dict)
    #: None where the file has no element for them.
    rules: list[Rule] | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """A value for all queues."""
        return self.values[key].value if key in self.values else default


def _weight(text: str, place: str) -> float:
    number = _number(text, place)
    if not 0 <= number <= LARGEST_WEIGHT:
        raise BadInput(place, text, f"a number from 0 to {LARGEST_WEIGHT:.0f}")
    return number


def _number(text: str, place: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(place, text, "a number")
    return number


def _count(text: str, place: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:11]) <= _LARGEST_COUNT):
        raise BadInput(place, text, f"a whole number from 0 to {_LARGEST_COUNT}")
    return int(text)


def _timeout_ms(text: str, place: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadInput(place, text, "a whole number of seconds, 0 or more")
    ms = int(text[:20]) * 1000
    return ms if ms <= LONGEST_MS else NEVER_MS


def _flag(text: str, _: str) -> bool:
    return text.lower() == "true"


def _text(text: str, _: str) -> str:
    return text


def _policy(text: str, _: str) -> str:
    return text.lower() if text.lower() in ("fair", "fifo", "drf") else text


def _default_policy(text: str, place: str) -> str:
    policy = _policy(text, place)
    if policy == "fifo":
        raise BadInput(place, text, "fair or drf: fifo is no default")
    return policy


def _users(text: str, _: str) -> Users:
    """Reads `user,user group,group`. The first blank ends the users, so one alone is nobody."""
    users, _blank, groups = text.partition(" ")
    return Users(*(tuple(dict.fromkeys(each for each in part.strip().split(",") if each)) for part in (users, groups)))


Reader = Callable[[str, str], Any]
#: Values that are read as they stand, blanks included.
_ACLS: Final = {"aclSubmitApps", "aclAdministerApps"}
_RESERVATION_ACLS: Final = {"aclAdministerReservations", "aclListReservations", "aclSubmitReservations"}
_OF_QUEUES: Final[dict[str, Reader]] = {
    "weight": _weight,
    "minResources": read_amounts,
    "maxResources": read_amounts,
    "maxChildResources": read_amounts,
    "maxContainerAllocation": read_amounts,
    "maxRunningApps": _count,
    "maxAMShare": _number,
    "schedulingPolicy": _policy,
    "fairSharePreemptionTimeout": _timeout_ms,
    "minSharePreemptionTimeout": _timeout_ms,
    "fairSharePreemptionThreshold": _number,
    "allowPreemptionFrom": _flag,
    **dict.fromkeys(_ACLS, _users),
    **dict.fromkeys(_RESERVATION_ACLS, _text),
}
_OF_ALL: Final[dict[str, Reader]] = {
    "defaultFairSharePreemptionTimeout": _timeout_ms,
    "defaultMinSharePreemptionTimeout": _timeout_ms,
    "defaultFairSharePreemptionThreshold": _number,
    "defaultQueueSchedulingPolicy": _default_policy,
    "queueMaxAppsDefault": _count,
    "queueMaxResourcesDefault": read_amounts,
    "queueMaxAMShareDefault": _number,
    "userMaxAppsDefault": _count,
    "reservation-planner": _text,
    "reservation-agent": _text,
    "reservation-policy": _text,
}
_OLD_NAMES: Final = {
    "schedulingMode": "schedulingPolicy",
    "defaultQueueSchedulingMode": "defaultQueueSchedulingPolicy",
    "fairSharePreemptionTimeout": "defaultFairSharePreemptionTimeout",
}


def read_allocation_file(data: bytes, problems: Problems, warnings: Warnings) -> AllocationFile:
    """Reads a file. Raises `UnusableFile` with all that is wrong with it."""
    read = _Reading(problems, warnings).file(read_elements(data, problems, TOP))
    problems.refuse()
    return read


class _Reading:
    def __init__(self, problems: Problems, warnings: Warnings) -> None:
        self._problems = problems
        self._warnings = warnings
        self._spelled_old: set[str] = set()

    def file(self, top: Element) -> AllocationFile:
        self._attributes(top, TOP, ())
        file = AllocationFile(Queue(ROOT, top.line, is_parent=True))
        queues = [each for each in top.children if each.name in _QUEUES]
        roots = [each for each in queues if each.attributes.get("name", "").strip().lower() == ROOT]
        if roots and len(queues) > 1:
            beside = next(each for each in queues if each is not roots[0])
            name = beside.attributes.get("name", "")
            self._wrong(beside.line, name, "stands beside root", "root alone at the top, and all others inside it")
        elif roots:
            file.root.line = roots[0].line
            self._inside(roots[0], file.root)
        for each in top.children:
            if each.name in _QUEUES:
                if not roots:
                    self._queue(each, file.root)
            elif each.name == "user":
                self._user(each, file)
            elif each.name == "queuePlacementPolicy":
                self._attributes(each, each.name, ())
                file.rules = [rule for child in each.children if (rule := self._rule(child)) is not None]
            else:
                self._value(each, "", _OF_ALL, file.values)
        # YARN makes it where the file has none.
        file.root.children.setdefault("default", Queue("root.default", file.root.line, is_declared=False))
        return file

    def _queue(self, element: Element, above: Queue) -> None:
        self._attributes(element, above.path, ("name", "type"))
        name = element.attributes.get("name", "").strip()
        try:
            pool_name(name)
        except BadInput as error:
            self._wrong(
                element.line, f"{above.path}: {element.name}", f"{name!r} is no name of a queue", error.expected
            )
            return
        if "." in name:
            self._wrong(
                element.line, f"{above.path}: {element.name}", f"{name!r} has a period", "a name without periods"
            )
            return
        queue = above.children.get(name)
        if queue is None:
            queue = above.children[name] = Queue(f"{above.path}.{name}", element.line)
        else:
            words = f"line {queue.line} has it already: of values that stand in both the later ones are used"
            self._warnings.say("W23", element.line, queue.path, words)
        self._inside(element, queue)

    def _inside(self, element: Element, queue: Queue) -> None:
        kind = element.attributes.get("type", "").strip()
        if kind not in ("", "parent"):
            self._warnings.say("W01", element.line, queue.path, f"unknown type {shown(kind)} is ignored")
        queue.is_parent |= kind == "parent"
        for each in element.children:
            if each.name in _QUEUES:
                self._queue(each, queue)
            elif each.name == "reservation":
                queue.values["reservation"] = Said(None, each.line)
            else:
                self._value(each, queue.path, _OF_QUEUES, queue.values)
        for key in ("reservation", "maxAMShare"):
            if key in queue.values and (queue.children or queue.is_parent) and queue.path != ROOT:
                line = queue.values[key].line
                self._wrong(line, f"{queue.path} {key}", "stands on a parent", "a queue without child queues")

    def _value(self, element: Element, path: str, readers: dict[str, Reader], into: dict[str, Said]) -> None:
        known = element.name in readers
        name = element.name if known else _OLD_NAMES.get(element.name, element.name)
        place = f"{path} {element.name}".strip()
        if name not in readers:
            self._warnings.say("W01", element.line, place, "unknown element is ignored")
            return
        self._attributes(element, place, ())
        for child in element.children:
            self._warnings.say("W01", child.line, place, f"unknown element <{shown(child.name)}> inside is ignored")
        if readers is _OF_ALL and name in into:
            if not known:  # an old spelling counts only where the new one is absent
                self._warnings.say("W18", element.line, place, f"{name} is used, of line {into[name].line}")
                return
            code = "W18" if name in self._spelled_old else "W23"
            self._warnings.say(code, element.line, place, f"is used, and not what stands on line {into[name].line}")
        if not known:
            self._spelled_old.add(name)
        text = element.text if name in _ACLS else element.text.strip()
        if not text:
            self._wrong(element.line, place, "is empty", "a value, or no such element")
            return
        try:
            into[name] = Said(readers[name](text, place), element.line)
        except BadInput as error:
            self._unusable(element.line, error)

    def _user(self, element: Element, file: AllocationFile) -> None:
        self._attributes(element, element.name, ("name",))
        name = element.attributes.get("name", "").strip()
        if not name:
            self._wrong(element.line, "user", "has no name", "the attribute name")
            return
        found: dict[str, Said] = {}
        for each in element.children:
            self._value(each, f"user {name}", {"maxRunningApps": _count}, found)
        if "maxRunningApps" in found:
            file.users[name] = found["maxRunningApps"]

    def _rule(self, element: Element) -> Rule | None:
        place = "queuePlacementPolicy"
        if element.name != "rule":
            self._warnings.say("W01", element.line, place, f"unknown element <{shown(element.name)}> is ignored")
            return None
        self._attributes(element, place, ("name", "create", "queue"))
        name = element.attributes.get("name", "").strip()
        inner = [rule for child in element.children if (rule := self._rule(child)) is not None]
        if (name == "nestedUserQueue") != (len(inner) == 1) or len(inner) > 1:
            expected = "one rule inside nestedUserQueue, and none inside others"
            self._wrong(element.line, f"{place} {name}", f"has {len(inner)} rules inside", expected)
            return None
        create = element.attributes.get("create", "true").strip().lower() == "true"
        queue = element.attributes.get("queue", "").strip()
        return Rule(name, element.line, create, queue, inner[0] if inner else None)

    def _attributes(self, element: Element, place: str, known: tuple[str, ...]) -> None:
        for name in element.attributes:
            if name not in known:
                words = f"unknown attribute {shown(name)} of <{shown(element.name)}> is ignored"
                self._warnings.say("W01", element.line, place, words)

    def _wrong(self, line: int, place: str, wrong: str, expected: str) -> None:
        self._problems.found.append(FileProblem(line, place, "", wrong, expected))

    def _unusable(self, line: int, error: BadInput) -> None:
        value = shown(error.value)
        self._problems.found.append(FileProblem(line, error.place, value, f"{value} cannot be used", error.expected))
