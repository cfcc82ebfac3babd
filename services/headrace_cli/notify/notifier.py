"""Decides what is notified, and keeps what is not delivered yet. Pure: the caller brings facts and times, and stores the state.

The log is read for each target separately, from the target's own position. If a target accepts nothing, reading for this target stops when
too many occurrences wait. So a target cannot delay other targets, or fill the memory. The state keeps an occurrence until its message is
delivered or dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.client.finished import FinishedOperation, LogPosition, LostEntries
from headrace_cli.notify.rules import (
    About,
    Mail,
    Rule,
    RuleKind,
    Rules,
    facts_of_duration,
    facts_of_operation,
    matches,
    words_of,
)

#: Number of occurrences waiting for one target at which the log is not read any further for this target. Ends of operations then wait in
#: the log.
MOST_WAITING: Final = 1_000
_LOST: Final = "log_entries_lost"
_NOT_WATCHED: Final = "not_watched"
#: A gap of at most this many milliseconds between two looks at pools or nodes, as at a restart, causes no notification.
_SHORT_GAP_MS: Final = 60_000


class Occurrence(msgspec.Struct, frozen=True):
    """Something that is notified once to each target of its rule."""

    #: Name that stays the same when the message is repeated.
    id: str
    rule: str
    kind: str
    at_ms: int
    text: str
    about: dict[str, str | int | float | bool]
    #: Mail addresses to which the occurrence is sent.
    recipients: list[str] = []

    def fields(self) -> dict[str, object]:
        """Return what a webhook gets."""
        fields = msgspec.structs.asdict(self)
        del fields["recipients"]
        return fields


class TargetState(msgspec.Struct):
    """The notifications of one target: its position in the log, and the occurrences that are not delivered yet."""

    #: Unix time in milliseconds. Operations that ended earlier are not notified.
    since_ms: int
    position: str = str(LogPosition())
    #: Occurrences of the message that is being sent; it stays the same until it is delivered or dropped.
    batch: list[Occurrence] = []
    waiting: list[Occurrence] = []
    #: Number of occurrences that were dropped since the last message.
    dropped: int = 0


class Condition(msgspec.Struct, frozen=True):
    """A pool that starves, or a node that is lost."""

    since_ms: int
    #: Unix time in milliseconds at which the condition was notified; 0: it was not notified yet.
    told_at_ms: int = 0


class NotifyState(msgspec.Struct):
    """Everything that survives a restart."""

    targets: dict[str, TargetState] = {}
    #: Present conditions, by `RULE:TREE/NAME`. NAME is the name of the pool or node.
    conditions: dict[str, Condition] = {}
    #: Unix time in milliseconds of the last look at the pools or nodes of a tree, by rule and tree.
    looked_at_ms: dict[str, int] = {}


class Present(NamedTuple):
    """A pool that starves now, or a node that is lost now."""

    #: Unix time in milliseconds at which the condition began; None: some time before now.
    since_ms: int | None
    about: About


class Message(NamedTuple):
    """The text of one request or one mail."""

    occurrences: Sequence[Occurrence]
    #: Number of earlier occurrences that were dropped.
    dropped: int

    @property
    def key(self) -> str:
        """A key of the message. It is the same at each attempt to deliver the message, also after a restart."""
        return hashlib.sha256("\n".join(each.id for each in self.occurrences).encode()).hexdigest()[:32]

    @property
    def title(self) -> str:
        """The title of the message, in one line."""
        first = " ".join(self.occurrences[0].text.split())
        return first if len(self.occurrences) == 1 else f"{len(self.occurrences)} notifications, the first: {first}"

    @property
    def text(self) -> str:
        """The text of the message, with one line for each occurrence."""
        lines = [each.text for each in self.occurrences]
        if self.dropped:
            lines.append(f"{self.dropped} earlier notifications could not be delivered and were dropped")
        return "\n".join(lines)


class Notifier:
    """Applies rules to facts."""

    def __init__(self, rules: Rules, state: NotifyState, now_ms: int, interval_ms: int = 0) -> None:
        """`interval_ms` is the time between two looks at pools and nodes."""
        self.state = state
        self._rules = rules
        self._short_gap_ms = max(_SHORT_GAP_MS, 2 * interval_ms)
        state.targets = {name: state.targets.get(name, TargetState(now_ms)) for name in rules.targets}
        names = {rule.name for rule in rules.rules}
        state.conditions = {key: known for key, known in state.conditions.items() if key.partition(":")[0] in names}
        state.looked_at_ms = {key: at_ms for key, at_ms in state.looked_at_ms.items() if key.partition(":")[0] in names}

    def on_ended(
        self, target: str, operations: Sequence[FinishedOperation], position: LogPosition, lost: LostEntries | None
    ) -> bool:
        """Add the ended operations that match rules of a target to the occurrences that wait for it. True if something waits now.

        `position` is the position in the log after these operations. `lost` are log entries that were removed before they were read.
        """
        own = self.state.targets[target]
        if lost is not None:
            text = (
                f"entries {lost.first} to {lost.last} of the log were removed before they were read: "
                "operations that ended there are not notified"
            )
            own.waiting.append(
                Occurrence(f"{_LOST}:{lost.first}", "", _LOST, 0, text, {}, self._recipients(target, {}))
            )
        rules = [rule for rule in self._rules.rules if target in rule.to and rule.when is RuleKind.OPERATION_ENDED]
        for each in operations:
            about = facts_of_operation(each)
            for rule in rules:
                if matches(rule, about):
                    name = f"{rule.name}:{each.operation}:{each.ended_at_ms}"
                    self._add(target, rule, name, each.ended_at_ms, about)
        own.position = str(position)
        return bool(own.waiting)

    def on_conditions(self, rule: Rule, tree: str, present: Mapping[str, Present], now_ms: int) -> bool:
        """Apply a rule to `present`: all pools of a tree that starve now, or all its nodes that are lost now.

        True if there is something new to send.
        """
        prefix, found = f"{rule.name}:{tree}/", self._take_look(rule, tree, now_ms)
        conditions = self.state.conditions
        for name, each in present.items():
            known = conditions.get(prefix + name, Condition(now_ms))
            since_ms, told_at_ms = known.since_ms if each.since_ms is None else each.since_ms, known.told_at_ms
            if since_ms > told_at_ms:
                told_at_ms = 0  # it ended and began again between two looks
            about = {**each.about, **facts_of_duration(since_ms, now_ms)}
            if not told_at_ms and now_ms - since_ms >= rule.for_ms and matches(rule, about):
                told_at_ms, found = now_ms, True
                for target in rule.to:
                    self._add(target, rule, f"{prefix}{name}:{since_ms}", now_ms, about)
            conditions[prefix + name] = Condition(since_ms, told_at_ms)
        for key in [key for key in conditions if key.startswith(prefix) and key[len(prefix) :] not in present]:
            del conditions[key]
        return found

    def _take_look(self, rule: Rule, tree: str, now_ms: int) -> bool:
        """Record a look at the pools or nodes of a tree. True if this adds an occurrence to send.

        It adds one if the look before is so long ago that a condition may have begun and ended since then. The occurrence says so, because
        neither Headrace nor its log records when pools starved or nodes were silent.
        """
        looked, key = self.state.looked_at_ms, f"{rule.name}:{tree}"
        since_ms = looked.get(key, now_ms)
        looked[key] = now_ms
        if now_ms - since_ms <= max(self._short_gap_ms, rule.for_ms):
            return False
        about = {"tree": tree, **facts_of_duration(since_ms, now_ms)}
        what = "nodes" if rule.when is RuleKind.NODE_LOST else "pools"
        text = (
            f"{what} of tree {tree} were not watched since {about['since']} ({about['lasts']}): "
            f"what rule {rule.name} is about may have begun and ended unnoticed"
        )
        for target in rule.to:
            recipients = self._recipients(target, {})
            occurrence = Occurrence(
                f"{_NOT_WATCHED}:{key}:{since_ms}", rule.name, _NOT_WATCHED, now_ms, text, about, recipients
            )
            self._let_wait(target, occurrence)
        return True

    def add_example(self, target: str, operation: FinishedOperation) -> None:
        """Add the end of an example operation to the occurrences that wait for a target, even if no rule matches it."""
        rule = Rule(name="example", when=RuleKind.OPERATION_ENDED, to=[target])
        self._add(target, rule, f"example:{target}", operation.ended_at_ms, facts_of_operation(operation))

    def is_full(self, target: str) -> bool:
        """True if so many occurrences wait for a target that the log is not to be read any further for this target."""
        return len(self.state.targets[target].waiting) >= MOST_WAITING

    def next_message(self, target: str) -> Message | None:
        """Return the message that is being sent, or begin the next message. None if there is nothing to send.

        All occurrences of a mail have the same recipients; other occurrences wait for the next mail.
        """
        own = self.state.targets[target]
        if not own.batch and own.waiting:
            to = own.waiting[0].recipients
            own.batch = [each for each in own.waiting if each.recipients == to]
            own.waiting = [each for each in own.waiting if each.recipients != to]
        return Message(own.batch, own.dropped) if own.batch else None

    def on_delivered(self, target: str) -> None:
        """Forget the message that was being sent."""
        own = self.state.targets[target]
        own.batch, own.dropped = [], 0

    def on_given_up(self, target: str) -> None:
        """Drop the message that was being sent. The next message says how many occurrences were dropped."""
        own = self.state.targets[target]
        own.dropped += len(own.batch)
        own.batch = []

    def _add(self, target: str, rule: Rule, name: str, at_ms: int, about: About) -> None:
        kept = {key: value for key, value in about.items() if key != "position"}
        recipients = self._recipients(target, about)
        if not recipients and isinstance(self._rules.targets[target].to, Mail):
            return  # only the owner gets mail, and neither the log nor admission has the owner any more
        text = words_of(rule, about)
        self._let_wait(target, Occurrence(name, rule.name, rule.when.value, at_ms, text, kept, recipients))

    def _let_wait(self, target: str, occurrence: Occurrence) -> None:
        own = self.state.targets[target]
        own.waiting.append(occurrence)
        if occurrence.kind != RuleKind.OPERATION_ENDED and len(own.waiting) > 2 * MOST_WAITING:
            # Drop the oldest occurrences. Of too many ends of operations, the rest waits in the log. Conditions cannot wait there, because
            # they are not in the log.
            own.dropped += len(own.waiting) - 2 * MOST_WAITING
            own.waiting = own.waiting[-2 * MOST_WAITING :]

    def _recipients(self, target: str, about: About) -> list[str]:
        to = self._rules.targets[target].to
        if not isinstance(to, Mail):
            return []
        user = str(about.get("user", ""))
        return [each.replace("{user}", user) for each in to.recipients if user or "{user}" not in each]
