"""Refusals: answers of a service that does not do what was asked.

Each refusal is a Struct with the facts of one situation; the process that receives it makes the text. An answer on the wire is either the
Struct of a successful answer or a refusal; the tag shows which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

import msgspec

from headrace.counted import counted
from headrace.errors import BadInput, HeadraceError, shortened, with_names, wrong_value
from headrace.pools.pool_config import Access
from headrace.pools.rights import Person, Right, holders
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, decode
from headrace.wire.version import Counter, Term

#: Largest number of names in each list of a refusal, such as the people with a right.
_MOST_NAMES: Final = 20

Answer = TypeVar("Answer", bound=msgspec.Struct)

#: Default reason for a write that may have failed, used if the bus gave no reason.
SLOW_BUS = "the bus is slow, has no leader at present, or its disk is full"


#: End of the text of a refusal, if the same request may be sent again.
_TRY_AGAIN: Final = "nothing was done, try again"


class _Refusal(msgspec.Struct, frozen=True, tag_field="refusal"):
    def text(self) -> str:
        """Return the refusal as text."""
        raise NotImplementedError

    def reason(self) -> str:
        """Return the text without "nothing was done, try again".

        For a request that was sent several times, "nothing was done" may be wrong: an earlier attempt may have had an effect.
        """
        return self.text().removesuffix(f"; {_TRY_AGAIN}")


class BadRequest(_Refusal, frozen=True, tag="bad_request"):
    """The request cannot be used as it is; nothing was done."""

    #: Part of the request that is wrong, such as `spec.job_count`.
    place: str
    value: str
    expected: str
    #: Rule of the configuration that is broken, such as `guarantee_sum`; empty if no rule is broken.
    rule: str = ""
    #: Used in place of `value` and `expected` if no single value is wrong: sentences that say what is wrong and what to do next.
    fault: str = ""

    @classmethod
    def because(cls, place: str, fault: str, rule: str = "") -> Self:
        """Return the refusal of a request in which no value is wrong."""
        # Older releases, which do not know the field `fault`, show `value` and `expected` instead.
        return cls(place, "the request", f"a request without this fault: {fault}", rule, fault)

    @classmethod
    def of(cls, error: BadInput, rule: str = "") -> Self:
        """Return the refusal that reports the error of an input."""
        if error.fault:
            return cls.because(error.place, error.fault, rule)
        return cls(error.place, shortened(str(error.value)), error.expected, rule)

    def at(self, place: str) -> Self:
        """Return the same refusal with another place."""
        return msgspec.structs.replace(self, place=place)

    def renamed(self, name_of: Callable[[str], str]) -> Self:
        """Return the same refusal with other names of inputs: in `place`, and wherever the text names an input between backticks."""
        expected, fault = (with_names(text, name_of) for text in (self.expected, self.fault))
        return msgspec.structs.replace(self, place=name_of(self.place), expected=expected, fault=fault)

    def text(self) -> str:
        return f"{self.place}: {self.fault or wrong_value(self.value, self.expected)}"


class NotFound(_Refusal, frozen=True, tag="not_found"):
    """The named thing is not known."""

    #: Kind of the thing, such as `pool`, `operation`, `node`, `job` or `tree`.
    what: str
    name: str
    #: Known names nearest to the name, best first.
    near: list[str] = []

    def text(self) -> str:
        hint = f"; did you mean {' or '.join(self.near[:3])}?" if self.near else ""
        return f"there is no {self.what} {self.name!r}{hint}"


class Exists(_Refusal, frozen=True, tag="exists"):
    """The name is taken."""

    what: str
    name: str
    #: Location of the holder of the name, such as a pool's path.
    where: str = ""

    def text(self) -> str:
        return f"{self.what} {self.name!r} exists already" + (f" ({self.where})" if self.where else "")


class WrongState(_Refusal, frozen=True, tag="wrong_state"):
    """The thing is in a state in which the request cannot be carried out."""

    what: str
    name: str
    state: str
    expected: str

    def text(self) -> str:
        return f"{self.what} {self.name} is {self.state}; expected {self.expected}"


class Busy(_Refusal, frozen=True, tag="busy"):
    """Too many requests are waiting. Nothing was done, and the same request may be sent again."""

    waiting: int
    oldest_waiting_ms: int
    #: Why the log accepts nothing, if known.
    why: str = ""
    #: Largest number of requests that each user may have waiting, if one user has too many; else 0.
    most_requests_of_a_user: int = 0
    #: Largest number of bytes of requests that each user may have waiting, if one user has too many; else 0.
    most_request_bytes_of_a_user: int = 0

    def text(self) -> str:
        if self.most_requests_of_a_user:
            return (
                f"busy: {self.waiting} of your requests are waiting; a user may have at most {self.most_requests_of_a_user} "
                f"waiting requests, or {self.most_request_bytes_of_a_user} bytes; {_TRY_AGAIN}"
            )
        why = f" ({self.why})" if self.why else ""
        return f"busy: {counted(self.waiting, 'waiting request')}, the oldest for {self.oldest_waiting_ms} ms{why}; {_TRY_AGAIN}"


class NotRecorded(_Refusal, frozen=True, tag="not_recorded"):
    """The log did not confirm the entry of the request in time. The request may still take effect, and may be
    sent again with the same id.
    """

    waited_ms: int
    #: Reason, if known.
    why: str = ""

    def text(self) -> str:
        why = f" ({self.why})" if self.why else ""
        return f"the request was not recorded within {self.waited_ms} ms{why}; send it again with the same id"


class NotReady(_Refusal, frozen=True, tag="not_ready"):
    """The service is starting; nothing was done."""

    why: str
    #: Newest revision of the pool configuration, if the request named a later revision. The later revision does not exist any more: it was
    #: lost with the server's newest writes, or an older backup was restored.
    revision: Counter | None = None

    def text(self) -> str:
        return f"not ready: {self.why}; {_TRY_AGAIN}"


class NotAllowed(_Refusal, frozen=True, tag="not_allowed"):
    """The caller may not do this."""

    who: str
    what: str
    #: Missing right, such as `use`; empty if only administrators of the whole system may do this.
    right: str = ""
    #: Pool on which the right is missing.
    pool: str = ""
    #: The first people who have the right, in the order of their names. Empty if nobody has it.
    holders: list[str] = []
    #: The first administrators that the answering service knows, in the order of their names.
    administrators: list[str] = []
    #: The first groups of the caller, the primary group first.
    groups: list[str] = []

    def text(self) -> str:
        all_who_may = [*self.holders, *(each for each in self.administrators if each not in self.holders)]
        needed = f"the right `{self.right}` on pool {self.pool}" if self.right else "the rights of an administrator"
        who = f"{self.who} (in {', '.join(self.groups)})" if self.groups else self.who
        return f"{who} may not {self.what}; this needs {needed}, held by: {', '.join(all_who_may) or 'nobody'}"


class AnswerTooLarge(_Refusal, frozen=True, tag="answer_too_large"):
    """The request was carried out, but its answer is larger than a message may be."""

    size_bytes: int

    def text(self) -> str:
        return (
            f"the answer has {self.size_bytes} bytes, but a message has at most {LARGEST_MESSAGE_BYTES}; request less"
        )


class ServiceFault(_Refusal, frozen=True, tag="service_fault"):
    """The service failed at this request because of a defect in the service. It continues to serve other requests."""

    #: Class name of the error.
    error: str

    def text(self) -> str:
        return f"the service failed while it handled the request ({self.error}); see its log. The request may have taken effect"


class BrokenRules(_Refusal, frozen=True, tag="broken_rules"):
    """A change of configuration breaks rules; nothing was changed."""

    problems: list[str]

    def text(self) -> str:
        rules = "1 rule is" if len(self.problems) == 1 else f"{len(self.problems)} rules are"
        return "\n".join([f"{rules} broken; nothing was changed", *self.problems])


class LimitBroken(msgspec.Struct, frozen=True):
    """A limit on operations that does not allow one more operation."""

    #: Setting, such as `max_operation_count`.
    name: str
    limit: int
    #: Present number of operations (or bytes).
    count: int
    #: Pool that has the limit; empty: the limit is for all trees together.
    pool: str = ""
    tree: str = ""
    #: User that the limit applies to; empty if the limit is not per user.
    user: str = ""
    #: The first pools, by name, that count towards the limit, if the limit is per user.
    holders: list[str] = []
    #: Bytes that the operation would take, if the limit is in bytes; `limit` and `count` are then in bytes too. 0 for any other limit.
    more_bytes: int = 0

    def text(self) -> str:
        if self.more_bytes:
            whose = f"live operations of {self.user}" if self.user else "live operations of all users"
            return (
                f"{whose} take {self.count} bytes of memory, and this operation would take {self.more_bytes} more; {self.name} is "
                f"{self.limit}. Wait until operations end, abort operations, or send large data as files (--upload) instead of arguments"
            )
        if not self.pool and self.user:
            return f"{self.user} has {self.count} operations in all trees together; {self.name} is {self.limit}"
        if not self.pool:
            return f"{self.count} operations are registered in all trees together; {self.name} is {self.limit}"
        if self.user:
            return (
                f"pool {self.pool!r} of tree {self.tree} cannot be made: {self.user} has {self.count} ephemeral pools "
                f"({', '.join(self.holders[:3])}); {self.name} is {self.limit}"
            )
        kind = "running operations" if "running" in self.name else "operations"
        return f"pool {self.pool!r} of tree {self.tree} has {self.count} {kind}; its {self.name} is {self.limit}"


class OverLimit(_Refusal, frozen=True, tag="over_limit"):
    """The pool or tree has as many operations as allowed. Nothing was done.

    `broken` has one entry for each tree whose limit is reached.
    """

    broken: list[LimitBroken]

    def text(self) -> str:
        what = "too many bytes" if any(one.more_bytes for one in self.broken) else "too many operations"
        return f"{what}: " + "; ".join(one.text() for one in self.broken)


class StaleTerm(_Refusal, frozen=True, tag="stale_term"):
    """The sender's term is lower than a term that the receiver knows. The sender takes a higher term or exits."""

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


@contextmanager
def renamed_inputs(name_of: Callable[[str], str]) -> Iterator[None]:
    """Rename the inputs in every `BadInput` and every refused request that the block raises.

    A message then names the input as the person gave it, such as `--time-limit`, whichever process found the fault.
    """
    try:
        yield
    except BadInput as error:
        raise error.renamed(name_of) from None
    except Refused as refused:
        if not isinstance(refused.refusal, BadRequest):
            raise
        raise Refused(refused.refusal.renamed(name_of)) from None


def not_allowed(
    person: Person, what: str, right: Right | None = None, pool: str = "", lists: Iterable[Access] = ()
) -> NotAllowed:
    """Return the refusal for a person who may not do something.

    `lists` are the access lists of the pool, of all pools above the pool, and of the tree.
    """
    named = holders(lists, right) if right is not None else []
    return NotAllowed(
        who=person.name,
        what=what,
        right=right.value if right is not None else "",
        pool=pool,
        holders=named[:_MOST_NAMES],
        administrators=sorted(person.administrators)[:_MOST_NAMES],
        groups=list(person.groups[:_MOST_NAMES]),
    )


def decode_answer(data: bytes, kind: type[Answer]) -> Answer | Refusal:
    """Decode the answer of a service: a message of the type `kind`, or a refusal. Raises `BadMessage` for anything else."""
    either: Any = kind | Refusal
    answer: Answer | Refusal = decode(data, either)
    return answer
