"""Read fair-scheduler.xml into queues and values, each with its line.

Values that cannot be read are reported. The module `translation` decides what all other values mean for pools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.durations import LONGEST_MS
from headrace.errors import BadInput
from headrace.pools.pool_config import LARGEST_WEIGHT
from headrace.tree_file.problems import FileProblem, Problems, shown
from headrace_cli.yarn.amounts import Amounts, java_number, read_amounts, whole_number
from headrace_cli.yarn.elements import Element, read_elements
from headrace_cli.yarn.warnings import Warnings

TOP: Final = "allocations"
ROOT: Final = "root"
#: YARN's infinite timeout in milliseconds: 10,000 days, longer than anybody waits.
NEVER_MS: Final = 10_000 * 86_400_000
_QUEUES: Final = ("queue", "pool")
_LARGEST_COUNT: Final = 2**31 - 1
_LONGEST_NAME: Final = 100


@dataclass(frozen=True)
class Said:
    """A value of the file with its line."""

    value: Any
    line: int


@dataclass(frozen=True)
class Users:
    """The names in an access list."""

    users: tuple[str, ...]
    groups: tuple[str, ...]

    @property
    def is_everybody(self) -> bool:
        """True if the list admits everybody."""
        return "*" in (*self.users, *self.groups)


@dataclass(frozen=True)
class Rule:
    """A placement rule."""

    name: str
    line: int
    create: bool
    queue: str
    inner: Rule | None


@dataclass
class Queue:
    """A queue with the values that the file gives to it."""

    path: str
    line: int
    is_parent: bool = False
    #: False for the queue `default` if the file does not declare it: YARN then makes this queue itself.
    is_declared: bool = True
    values: dict[str, Said] = field(default_factory=dict)
    children: dict[str, Queue] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def is_inner(self) -> bool:
        """True if the queue is a parent, even a parent without child queues."""
        return bool(self.children) or self.is_parent

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value that the file gives to this queue, or `default` if the file gives none."""
        return self.values[key].value if key in self.values else default

    def all(self) -> Iterator[Queue]:
        """Yield the queue and all queues below it, parents first."""
        yield self
        for child in self.children.values():
            yield from child.all()


@dataclass
class AllocationFile:
    """The content of the whole file."""

    root: Queue
    #: Values that apply to all queues, by the name of their XML element.
    values: dict[str, Said] = field(default_factory=dict)
    users: dict[str, Said] = field(default_factory=dict)
    #: Placement rules; None: the file has no element for them.
    rules: list[Rule] | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value that applies to all queues, or `default` if the file does not contain it."""
        return self.values[key].value if key in self.values else default


def _weight(text: str, place: str) -> float:
    number = java_number(text, place)
    if not 0 <= number <= LARGEST_WEIGHT:
        raise BadInput(place, text, f"a number from 0 to {LARGEST_WEIGHT:.0f}")
    return number


def _count(text: str, place: str) -> int:
    count = whole_number(text)
    if count is None or count > _LARGEST_COUNT:
        raise BadInput(place, text, f"a whole number from 0 to {_LARGEST_COUNT}")
    return count


def _timeout_ms(text: str, place: str) -> int:
    seconds = whole_number(text)
    if seconds is None:
        raise BadInput(place, text, "a whole number of seconds, 0 or more")
    return seconds * 1000 if seconds * 1000 <= LONGEST_MS else NEVER_MS


def _flag(text: str, _: str) -> bool:
    return text.lower() == "true"


def _text(text: str, _: str) -> str:
    return text


def _policy(text: str, _: str) -> str:
    return text.lower() if text.lower() in ("fair", "fifo", "drf") else _OWN_CLASSES.get(text, text)


def _default_policy(text: str, place: str) -> str:
    policy = _policy(text, place)
    if policy == "fifo":
        raise BadInput(place, text, "fair or drf; fifo cannot be the default")
    return policy


def _users(text: str, _: str) -> Users:
    """Parse `user,user group,group`. The first blank separates the users from the groups, so a text of one blank names nobody."""
    users, _blank, groups = text.partition(" ")
    return Users(*(tuple(dict.fromkeys(each for each in part.strip().split(",") if each)) for part in (users, groups)))


Reader = Callable[[str, str], Any]
_PACKAGE: Final = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.policies"
#: Names of YARN's own policies, by the names of their Java classes.
_OWN_CLASSES: Final = {
    f"{_PACKAGE}.FairSharePolicy": "fair",
    f"{_PACKAGE}.FifoPolicy": "fifo",
    f"{_PACKAGE}.DominantResourceFairnessPolicy": "drf",
}
#: Elements whose text is read unchanged, including blanks.
_ACLS: Final = {"aclSubmitApps", "aclAdministerApps"}
_RESERVATION_ACLS: Final = {"aclAdministerReservations", "aclListReservations", "aclSubmitReservations"}
_OF_QUEUES: Final[dict[str, Reader]] = {
    "weight": _weight,
    "minResources": read_amounts,
    "maxResources": read_amounts,
    "maxChildResources": read_amounts,
    "maxContainerAllocation": read_amounts,
    "maxRunningApps": _count,
    "maxAMShare": java_number,
    "schedulingPolicy": _policy,
    "fairSharePreemptionTimeout": _timeout_ms,
    "minSharePreemptionTimeout": _timeout_ms,
    "fairSharePreemptionThreshold": java_number,
    "allowPreemptionFrom": _flag,
    **dict.fromkeys(_ACLS, _users),
    **dict.fromkeys(_RESERVATION_ACLS, _text),
}
_OF_ALL: Final[dict[str, Reader]] = {
    "defaultFairSharePreemptionTimeout": _timeout_ms,
    "defaultMinSharePreemptionTimeout": _timeout_ms,
    "defaultFairSharePreemptionThreshold": java_number,
    "defaultQueueSchedulingPolicy": _default_policy,
    "queueMaxAppsDefault": _count,
    "queueMaxResourcesDefault": read_amounts,
    "queueMaxAMShareDefault": java_number,
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
    """Read a file. Raises `UnusableFile` with all problems of the file."""
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
        self._refuse_sparks(top)
        file = AllocationFile(Queue(ROOT, top.line, is_parent=True))
        queues = [each for each in top.children if each.name in _QUEUES]
        roots = [each for each in queues if each.attributes.get("name", "").strip().lower() == ROOT]
        if roots and len(queues) > 1:
            beside = next(each for each in queues if each is not roots[0])
            name = beside.attributes.get("name", "")
            self._wrong(
                beside.line, name, "is beside root", "root as the only top queue, and all other queues inside it"
            )
        elif roots:
            file.root.line = roots[0].line
            self._inside(roots[0], file.root)
        rules: Said | None = None
        for each in top.children:
            if each.name in _QUEUES:
                if not roots:
                    self._queue(each, file.root)
            elif each.name == "user":
                self._user(each, file)
            elif each.name == "queuePlacementPolicy":
                self._attributes(each, each.name, ())
                self._twice(each, each.name, rules)
                rules = Said(None, each.line)
                file.rules = [rule for child in each.children if (rule := self._rule(child)) is not None]
            else:
                self._value(each, "", _OF_ALL, file.values)
        # YARN makes the queue `default` if the file does not declare it, so this queue is added.
        file.root.children.setdefault("default", Queue("root.default", file.root.line, is_declared=False))
        return file

    def _refuse_sparks(self, top: Element) -> None:
        """Refuse Spark's fairscheduler.xml, which has the same top element. An import of such a file would remove all pools of the tree."""
        pools = [each for each in top.children if each.name == "pool"]
        inside = {child.name for pool in pools for child in pool.children}
        is_sparks = "minShare" in inside or (
            len(pools) == len(top.children) and {"schedulingMode"} <= inside <= {"schedulingMode", "weight"}
        )
        if is_sparks and not any(each.name == "queue" for each in top.all()):
            wrong = "this is Spark's fairscheduler.xml: its pools share the cores of one application"
            expected = "a fair-scheduler.xml of YARN, in which queues are <queue> elements"
            self._problems.found.append(FileProblem(pools[0].line, "", "<pool>", wrong, expected))

    def _twice(self, element: Element, place: str, before: Said | None, code: str = "W23") -> None:
        """Warn that the value of `element` is used instead of the value of an earlier line. Do nothing if `before` is None."""
        if before is not None:
            self._warnings.say(code, element.line, place, f"is used instead of line {before.line}")

    def _queue(self, element: Element, above: Queue) -> None:
        self._attributes(element, above.path, ("name", "type"))
        name = element.attributes.get("name", "").strip()
        if not (len(name) <= _LONGEST_NAME and re.search("[a-zA-Z0-9]", name)):
            wrong, expected = (
                f"{shown(name)!r} is not a valid name of a queue",
                "1 to 100 characters, with at least one letter or digit",
            )
            self._wrong(element.line, f"{above.path}: {element.name}", wrong, expected)
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
            words = f"line {queue.line} defines this queue already: of values in both, the later are used"
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
        if "reservation" in queue.values and queue.is_inner and queue.path != ROOT:
            line = queue.values["reservation"].line
            self._wrong(line, f"{queue.path} reservation", "is set on a parent queue", "a queue without child queues")

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
        before = into.get(name)
        if readers is _OF_ALL and before is not None and not known:
            # An old spelling is used only if the new spelling is absent.
            self._warnings.say("W18", element.line, place, f"{name} on line {before.line} is used instead")
            return
        is_spelled_twice = readers is _OF_ALL and name in self._spelled_old
        self._twice(element, place, before, "W18" if is_spelled_twice else "W23")
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
            return
        if isinstance(amounts := into[name].value, Amounts) and amounts.unread:
            taken = " and ".join(map(repr, amounts.read))
            words = f"{shown(amounts.unread)!r} is ignored: only {taken} are read, as in YARN"
            self._warnings.say("W01", element.line, place, words)

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
            before = file.users.get(name)
            self._twice(element, f"user {name}", before)
            file.users[name] = found["maxRunningApps"]

    def _rule(self, element: Element) -> Rule | None:
        place = "queuePlacementPolicy"
        if element.name.lower() != "rule":
            self._warnings.say("W01", element.line, place, f"unknown element <{shown(element.name)}> is ignored")
            return None
        self._attributes(element, place, ("name", "create", "queue"))
        name = element.attributes.get("name", "").strip()
        inner = [rule for child in element.children if (rule := self._rule(child)) is not None]
        if (name == "nestedUserQueue") != (len(inner) == 1) or len(inner) > 1:
            expected = "one rule inside nestedUserQueue, and none inside other rules"
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
        self._problems.found.append(FileProblem.of(line, error))
