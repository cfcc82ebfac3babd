"""Refusals: answers of a service that does not do what was asked.

Each is a situation with its figures. The text is made by the reader. An answer on the wire is either the answer's own Struct or one
of these, told apart by the tag.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from headrace.errors import HeadraceError, said_of
from headrace.pools.pool_config import Access
from headrace.pools.rights import Person, Right, holders
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, decode
from headrace.wire.version import Counter, Term

#: Of those who have a right, in a refusal.
_MOST_NAMES: Final = 20

Answer = TypeVar("Answer", bound=msgspec.Struct)

#: Why something may not have been written, where the bus said nothing.
SLOW_BUS = "the bus is slow, has no leader for the moment, or its disk is full"


#: Said of a refusal after which the same request may be sent again.
_TRY_AGAIN: Final = "nothing was done, try again"


class _Refusal(msgspec.Struct, frozen=True, tag_field="refusal"):
    def text(self) -> str:
        """The refusal in words."""
        raise NotImplementedError

    def reason(self) -> str:
        """The same without what it says of the effect of the request: an earlier attempt may have had one."""
        return self.text().removesuffix(f"; {_TRY_AGAIN}")


class BadRequest(_Refusal, frozen=True, tag="bad_request"):
    """The request cannot be used as it is, and nothing was done."""

    #: Which part of the request, such as `spec.job_count`.
    place: str
    value: str
    expected: str
    #: Which rule of configurations is broken, such as `guarantee_sum`; empty where it is none of them.
    rule: str = ""

    def text(self) -> str:
        return f"{self.place}: {self.value} cannot be used; {said_of(self.expected)}"


class NotFound(_Refusal, frozen=True, tag="not_found"):
    """No such thing is known."""

    #: `pool`, `operation`, `node`, `job`, `tree`.
    what: str
    name: str
    #: The nearest names there are, best first.
    near: list[str] = []

    def text(self) -> str:
        hint = f"; did you mean {' or '.join(self.near[:3])}?" if self.near else ""
        return f"there is no {self.what} {self.name!r}{hint}"


class Exists(_Refusal, frozen=True, tag="exists"):
    """The name is taken."""

    what: str
    name: str
    #: Where the holder of the name stands, such as a pool's path.
    where: str = ""

    def text(self) -> str:
        return f"{self.what} {self.name!r} exists already" + (f" ({self.where})" if self.where else "")


class WrongState(_Refusal, frozen=True, tag="wrong_state"):
    """The thing is in a state in which this cannot be done."""

    what: str
    name: str
    state: str
    expected: str

    def text(self) -> str:
        return f"{self.what} {self.name} is {self.state}; expected {self.expected}"


class Busy(_Refusal, frozen=True, tag="busy"):
    """Too much waits already. Nothing was done, and the same request may be sent again."""

    waiting: int
    oldest_waiting_ms: int
    #: Why the log takes nothing, where that is known.
    why: str = ""
    #: Where the requests of the one user alone are too many: how many of them may wait, and how many bytes; else 0.
    most_requests_of_a_user: int = 0
    most_request_bytes_of_a_user: int = 0

    def text(self) -> str:
        if self.most_requests_of_a_user:
            return (
                f"busy: {self.waiting} of your requests wait here, and at most {self.most_requests_of_a_user} of one user may, "
                f"or {self.most_request_bytes_of_a_user} bytes; {_TRY_AGAIN}"
            )
        why = f" ({self.why})" if self.why else ""
        return f"busy: {self.waiting} requests wait, the oldest for {self.oldest_waiting_ms} ms{why}; {_TRY_AGAIN}"


class NotRecorded(_Refusal, frozen=True, tag="not_recorded"):
    """The log did not confirm in time. The request may yet take effect, and the same id may be retried."""

    waited_ms: int
    #: Why not, where that is known.
    why: str = ""

    def text(self) -> str:
        why = f" ({self.why})" if self.why else ""
        return f"not recorded within {self.waited_ms} ms{why}; send the same request with the same id again"


class NotReady(_Refusal, frozen=True, tag="not_ready"):
    """The service is starting, and nothing was done."""

    why: str
    #: The newest revision of the pool configuration, where the request named a later one, which does not exist: it was lost with the
    #: server's newest writes, or an older backup was put back.
    revision: Counter | None = None

    def text(self) -> str:
        return f"not ready: {self.why}; {_TRY_AGAIN}"


class NotAllowed(_Refusal, frozen=True, tag="not_allowed"):
    """The caller may not do this."""

    who: str
    what: str
    #: The right that is lacking, such as `use`; empty: what administrators of the whole may.
    right: str = ""
    #: The pool on which it is lacking.
    pool: str = ""
    #: Those who have it by name, as far as they are told.
    holders: list[str] = []
    #: Those who may do everything, likewise.
    administrators: list[str] = []

    def text(self) -> str:
        all_who_may = [*self.holders, *(each for each in self.administrators if each not in self.holders)]
        needed = f"the right `{self.right}` on pool {self.pool}" if self.right else "an administrator"
        return f"{self.who} may not {self.what}; it takes {needed}: {', '.join(all_who_may) or 'nobody'}"


class AnswerTooLarge(_Refusal, frozen=True, tag="answer_too_large"):
    """The request was carried out, and its answer is larger than a message may be."""

    size_bytes: int

    def text(self) -> str:
        return f"the answer takes {self.size_bytes} bytes, a message at most {LARGEST_MESSAGE_BYTES}; ask for less"


class ServiceFault(_Refusal, frozen=True, tag="service_fault"):
    """The service failed at this request by a defect of its own. It goes on."""

    #: The class of the error.
    error: str

    def text(self) -> str:
        return f"the service failed at this request ({self.error}); its log says where; it may have taken effect"


class BrokenRules(_Refusal, frozen=True, tag="broken_rules"):
    """A change of configuration breaks several rules, and nothing was changed."""

    problems: list[str]

    def text(self) -> str:
        return "\n".join([f"{len(self.problems)} rules are broken; nothing was changed", *self.problems])


class LimitBroken(msgspec.Struct, frozen=True):
    """A limit on operations that leaves no room for one more."""

    #: The setting, such as `max_operation_count`.
    name: str
    limit: int
    #: What is there already.
    count: int
    #: The pool whose limit it is; empty: that of all trees together.
    pool: str = ""
    tree: str = ""
    #: Of whom, where the limit is one for each user; and the first three that take the room.
    user: str = ""
    holders: list[str] = []
    #: Bytes that the operation would take, where the limit is one of bytes, and then `limit` and `count` are bytes too; else 0.
    more_bytes: int = 0

    def text(self) -> str:
        if self.more_bytes:
            whose = f"live operations of {self.user}" if self.user else "live operations of all users"
            return (
                f"{whose} take {self.count} bytes of memory, and this one would take {self.more_bytes} more; {self.name} is "
                f"{self.limit}: wait until some end, abort some, or send large data as files (--upload) in place of arguments"
            )
        if not self.pool and self.user:
            return f"{self.user} has {self.count} operations in all trees together; {self.name} is {self.limit}"
        if not self.pool:
            return f"{self.count} operations are registered in all trees together; {self.name} is {self.limit}"
        if self.user:
            return (
                f"pool {self.pool!r} of tree {self.tree} cannot be made: {self.user} has {self.count} ephemeral "
                f"({', '.join(self.holders[:3])}); {self.name} is {self.limit}"
            )
        kind = "running operations" if "running" in self.name else "operations"
        return f"pool {self.pool!r} of tree {self.tree} has {self.count} {kind}; its {self.name} is {self.limit}"


class OverLimit(_Refusal, frozen=True, tag="over_limit"):
    """The pool or tree has as many operations as it may. Nothing was done.

    There is one entry for each tree that has no room.
    """

    broken: list[LimitBroken]

    def text(self) -> str:
        what = "too many bytes" if any(one.more_bytes for one in self.broken) else "too many operations"
        return f"{what}: " + "; ".join(one.text() for one in self.broken)


class StaleTerm(_Refusal, frozen=True, tag="stale_term"):
    """The sender's term is lower than one the refuser knows. The sender takes a higher one or ends."""

    role: str
    known: Term
    got: Term

    def text(self) -> str:
        return f"term {self.got} of {self.role} is over; term {self.known} is known"


Refusal = (
    BadRequest
    | NotFound
    | Exists
    | WrongState
    | Busy
    | NotRecorded
    | NotReady
    | NotAllowed
    | AnswerTooLarge
    | ServiceFault
    | BrokenRules
    | OverLimit
    | StaleTerm
)


class Refused(HeadraceError):
    """A service refused a request."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.text())


def not_allowed(
    person: Person, what: str, right: Right | None = None, pool: str = "", lists: Iterable[Access] = ()
) -> NotAllowed:
    """Refuses a person something. `lists` are those of the pool, of all above it and of the tree."""
    named = holders(lists, right) if right is not None else []
    return NotAllowed(
        who=person.name,
        what=what,
        right=right.value if right is not None else "",
        pool=pool,
        holders=named[:_MOST_NAMES],
        administrators=sorted(person.administrators)[:_MOST_NAMES],
    )


def decode_answer(data: bytes, kind: type[Answer]) -> Answer | Refusal:
    """Reads what a service answered: a `kind`, or the refusal. Raises `BadMessage` for anything else."""
    either: Any = kind | Refusal
    answer: Answer | Refusal = decode(data, either)
    return answer
