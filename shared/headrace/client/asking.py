"""Send one request to a service, and retry it as long as a retry can help and cannot do harm.

Busy, not ready, no responders and no connection mean that nothing was done: every request may be retried. After a timeout or the refusal
"not recorded", only a repeatable request may be retried: a request whose effect is the same however often it is carried out. A long
computation that changes nothing is requested only once: a retry would wait until the service has answered the first request, although
nobody reads that answer any more.

If a request is never answered, the error is explained by the states that all processes report: a service is down, has no leader
yet, or serves another tree than the request meant.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import anyio
import msgspec

from headrace.bus import Bus, BusError, NoResponders, NotConnected, RequestTimeout
from headrace.client.errors import Unanswered, Unreadable
from headrace.client.processes import ask_all
from headrace.errors import shortened
from headrace.runtime.clock import Clock
from headrace.wire.codec import BadMessage
from headrace.wire.defects import encode_request
from headrace.wire.refusals import Busy, NotReady, NotRecorded, Refusal, Refused, decode_answer
from headrace.wire.services import ListServices, ServiceView

T = TypeVar("T", bound=msgspec.Struct)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Reading(NamedTuple):
    """A request that changes nothing."""

    #: Service that answers; empty for requests to the processes of all services, and to nodes.
    service: str
    #: Name of the data that the service reports, in the plural, for messages about missing data.
    tells: str


_ADMISSION: Final = "admission"
_FAIR_SHARE: Final = "fair_share"
_ALLOCATOR: Final = "the allocator"

#: Verbs that change nothing. If such a request is not answered, it has had no effect. A request with any other verb may have had an effect.
READS: Final[Mapping[str, Reading]] = {
    "op.get": Reading(_ADMISSION, "operations"),
    "op.list": Reading(_ADMISSION, "operations"),
    "op.jobs": Reading(_ADMISSION, "jobs"),
    "op.explain": Reading(_ADMISSION, "limits on operations"),
    "op.history": Reading(_ADMISSION, "records of what happened"),
    "op.log": Reading(_ADMISSION, "records of what happened"),
    "op.plan_start": Reading(_ADMISSION, "dry runs of starts"),
    "pool.counts": Reading(_ADMISSION, "numbers of operations"),
    "pool.lost_work": Reading(_ADMISSION, "losses by preemption"),
    "consumption": Reading(_ADMISSION, "records of consumption"),
    "rights": Reading(_ADMISSION, "rights"),
    "group.get": Reading(_ADMISSION, "groups"),
    "group.list": Reading(_ADMISSION, "groups"),
    "token.list": Reading(_ADMISSION, "tokens"),
    "pool.list": Reading(_FAIR_SHARE, "shares"),
    "pool.explain": Reading(_FAIR_SHARE, "reasons for shares"),
    "pool.history": Reading(_FAIR_SHARE, "records of pools"),
    "pool.what_if": Reading(_FAIR_SHARE, "resulting shares"),
    "tree.list": Reading(_FAIR_SHARE, "settings of trees"),
    "op.where": Reading(_ALLOCATOR, "nodes of jobs"),
    "op.why": Reading(_ALLOCATOR, "reasons of waiting"),
    "op.fit": Reading(_ALLOCATOR, "nodes with free resources"),
    "op.progress": Reading(_ALLOCATOR, "progress of jobs"),
    "node.list": Reading(_ALLOCATOR, "nodes"),
    "preemption.observed": Reading(_ALLOCATOR, "preemptions"),
    "service.list": Reading("", "processes"),
    "service.figures": Reading("", "figures"),
    "job.logs": Reading("", "output"),
}
#: The service that carries out each verb that changes something. Messages name this service if it does not answer.
CHANGES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("op.start", "op.update", "op.suspend", "op.resume", "op.complete", "op.abort"), _ADMISSION),
    **dict.fromkeys(
        (
            "op.scan",
            "op.upload",
            "node.change",
            "node.token",
            "group.change",
            "token.create",
            "token.revoke",
            "token.end",
        ),
        _ADMISSION,
    ),
    **dict.fromkeys(("pool.change", "pool.move_to_tree", "tree.create", "tree.remove"), _FAIR_SHARE),
    "debug.heartbeat": "",
    "job.session": "",
}
#: Seconds for which a wait or a follower tolerates an unavailable server, so that a restart of services or bus goes unnoticed.
LONGEST_ABSENCE_S = 60.0
#: Seconds that one attempt waits for its answer; services answer within 2 s or say that they could not.
_ATTEMPT_S = 4.0
#: Seconds of silence after which a command that shows data of several services stops asking the silent service. It asks this service again
#: after `_REMEMBERED_S`.
PATIENCE_S: Final = 2.2
#: Seconds for which a read request is retried while no process listens, so that a quick restart of a service goes
#: unnoticed.
_NOBODY_S: Final = 1.8
#: Seconds for which a silent service is not asked again: longer than a command that shows data of several services takes. It is also short,
#: so that a command that repeats its requests soon notices that the service is back.
_REMEMBERED_S: Final = 5.0
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_jitter = random.Random()


class Pauses:
    """Growing pauses with jitter between retries, so that many clients do not retry at the same time."""

    def __init__(self, first_s: float = _FIRST_PAUSE_S, longest_s: float = _LONGEST_PAUSE_S) -> None:
        self._next_s = first_s
        self._longest_s = longest_s

    def next_s(self) -> float:
        pause = self._next_s * (0.5 + _jitter.random())
        self._next_s = min(self._longest_s, self._next_s * 2)
        return pause


async def at_once(ask: Callable[[K], Awaitable[V]], about: Sequence[K]) -> dict[K, V]:
    """Return the result of `ask` for each item, in the order of the items. All requests run concurrently."""
    found: dict[K, V] = {}

    async def ask_one(one: K) -> None:
        found[one] = await ask(one)

    try:
        async with anyio.create_task_group() as tasks:
            for one in about:
                tasks.start_soon(ask_one, one)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return {one: found[one] for one in about}


def reading_of(verb: str) -> Reading | None:
    """Return the read request that a verb stands for, whatever tree or node the verb names. None for a verb that changes something."""
    return READS.get(".".join(verb.split(".")[:2]))


class Asked(NamedTuple):
    """The service that a request is for."""

    #: Name of the service in messages; empty for none.
    service: str
    tree: str
    #: Name of the service and of its tree; without the tree if that is the client's own tree.
    name: str

    @property
    def role(self) -> str:
        """The role of the service, as the processes of the service report it."""
        kind = self.service.removeprefix("the ")
        return kind if kind == _ADMISSION else f"{kind}.{self.tree}"

    def state(self, views: Sequence[ServiceView], *, is_heard: bool) -> str:
        """Return why the service does not answer, according to all processes: a sentence without its full stop.

        `is_heard` is True if some process received the request.
        """
        if views and self.tree and self.service != _ADMISSION and not serves(views, self.tree):
            return unserved(self.tree)
        leads = [view.leads for view in views if view.role == self.role]
        if is_heard or any(leads) or not views:
            return f"{self.name} does not answer"
        return f"{self.name} has no leader yet; a standby takes over" if leads else f"{self.name} is down"


def serves(views: Sequence[ServiceView], tree: str) -> bool:
    """True if some process serves this tree."""
    return any(view.role.endswith(f".{tree}") for view in views)


def unserved(tree: str) -> str:
    """Return the message about a tree that no process serves: a sentence without its full stop."""
    return (
        f"no process serves tree {tree}: start fair_share, integral and allocator with the setting `tree`, "
        f"or `headrace up` with `--tree {tree}` too"
    )


class Silence:
    """Services that did not answer read requests within `patience_s`, and the data that is missing because of that.

    The service of each tree is counted separately. With `patience_s` None no service ever counts as silent.
    """

    def __init__(self, clock: Clock, own: str = "", patience_s: float | None = None) -> None:
        self.patience_s = patience_s
        #: True if read requests are retried until their timeout even while no process listens. Commands that change
        #: something or wait need this.
        self.bears_restarts = False
        self._clock = clock
        self._own = own
        self._until_s: dict[str, float] = {}
        #: State of each silent service whose state is known: a sentence without its full stop.
        self._known: dict[str, str] = {}
        #: The last answers of all processes.
        self._processes: Sequence[ServiceView] = ()
        #: Steady time in seconds until which the answers in `_processes` count as recent.
        self._processes_until_s = 0.0
        #: Data that is missing, by the service that would report it, in the order of the requests.
        self._unknown: dict[str, dict[str, None]] = {}

    def party(self, verb: str, request: msgspec.Struct) -> Asked:
        """Return the service that handles a verb. The name of the service is empty for verbs that nodes or all processes handle."""
        reading = reading_of(verb)
        service = reading.service if reading is not None else CHANGES.get(verb, "")
        tree = self._own
        if service == _ALLOCATOR:
            tree = verb.rpartition(".")[2]
        elif service == _FAIR_SHARE:
            tree = getattr(request, "asked", None) or getattr(request, "tree", None) or tree
        return Asked(service, tree, service if tree == self._own else f"{service} of tree {tree}")

    @property
    def processes(self) -> Sequence[ServiceView] | None:
        """The recent answers of all processes. None if the processes must be asked again."""
        return self._processes if self._clock.steady_s() < self._processes_until_s else None

    def note_processes(self, views: Sequence[ServiceView]) -> None:
        """Store the answers of all processes."""
        self._processes, self._processes_until_s = views, self._clock.steady_s() + _REMEMBERED_S

    def is_missing(self, asked: Asked) -> bool:
        """True if the recent answers of all processes contain no process of the service."""
        return bool(self.processes) and not any(view.role == asked.role for view in self.processes or ())

    def why(self, who: str) -> str:
        """Return what is known of a silent service: a sentence without its full stop."""
        return self._known.get(who, f"{who} does not answer")

    def holds(self, who: str) -> bool:
        """True if the service was silent recently."""
        return self._clock.steady_s() < self._until_s.get(who, 0.0)

    def begin(self, who: str, verb: str, known: str = "") -> None:
        """Record that the service did not answer, or was not asked because it was silent before. `known` is the reason, as a sentence."""
        reading = reading_of(verb)
        if known:
            self._known[who] = known
        if self.patience_s is not None and who and reading is not None:
            if not self.holds(who):
                self._until_s[who] = self._clock.steady_s() + _REMEMBERED_S
            self._unknown.setdefault(who, {})[reading.tells] = None

    def end(self, who: str) -> None:
        """Record that the service answered."""
        for kept in (self._until_s, self._unknown, self._known):
            kept.pop(who, None)

    def words(self) -> list[str]:
        """Return one sentence for each silent service. The sentence says which data is missing."""
        return [
            f"{self.why(who)}: {', '.join(f'no {each}' for each in unknown)} are shown"
            for who, unknown in self._unknown.items()
        ]


class Asker:
    """Sends requests for one user. `subject_of` returns the subject of a verb; `timeout_s` is the default timeout of a request."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        subject_of: Callable[[str], str],
        timeout_s: float,
        silence: Silence | None = None,
        blocked: Callable[[], str] = str,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._subject_of = subject_of
        self._timeout_s = timeout_s
        self._silence = silence or Silence(clock)
        #: Returns why a retry cannot help; empty if it may help.
        self._blocked = blocked
        #: Newest revision of the pool configuration that a change of this client made; 0 for none.
        self.revision = 0

    async def ask(
        self,
        verb: str,
        request: msgspec.Struct,
        kind: type[T],
        *,
        timeout_s: float | None = None,
        repeatable: bool = True,
        computes: bool = False,
    ) -> T:
        """Return the answer, of type `kind`. `computes` is True for a long computation, which is one of `READS`.

        Raises `Refused`, `BadInput`, or `Unanswered` after the timeout.
        """
        asked = self._silence.party(verb, request)
        who = asked.name if reading_of(verb) is not None else ""
        if self._silence.holds(who):
            raise await self._unanswered(verb, 0.0, RequestTimeout("the last request was not answered either"), asked)
        patience_s = self._silence.patience_s if who and not computes else None
        data = encode_request(request)
        started = heard_s = self._clock.steady_s()
        deadline = started + (self._timeout_s if timeout_s is None else timeout_s)
        pauses = Pauses()
        #: The last failure after which it is unknown whether the request was done.
        doubt: BusError | Refused | None = None
        #: The failure that the final error reports.
        said: BusError | Refused | None = None
        while True:
            left_s = max(0.001, deadline - self._clock.steady_s())
            attempt_s = left_s if computes else min(patience_s or _ATTEMPT_S, left_s)
            try:
                return await self._attempt(who, verb, data, kind, attempt_s)
            except (NoResponders, NotConnected) as error:
                trouble: BusError | Refused = error
            except RequestTimeout as error:
                trouble = doubt = error
            except Refused as refused:
                if not isinstance(refused.refusal, Busy | NotReady | NotRecorded):
                    raise
                trouble = refused
                request, data = self._without_lost_revision(request, data, refused.refusal)
                doubt = refused if isinstance(refused.refusal, NotRecorded) else doubt
            if not isinstance(trouble, NoResponders | NotConnected):
                self._give_up_if_blocked(verb, started, trouble, maybe_done=doubt is not None)
            # True if the deadline cut this attempt short. The timeout of such an attempt says less about the service than the failures of
            # earlier attempts.
            is_cut = isinstance(trouble, RequestTimeout) and attempt_s < (patience_s or _ATTEMPT_S)
            if not (is_cut and said is not None) and (doubt is None or doubt is trouble):
                said = trouble
            pause_s = pauses.next_s()
            now = self._clock.steady_s()
            is_nobody = isinstance(trouble, NoResponders)
            heard_s = heard_s if is_nobody else now
            is_gone = is_nobody and (now - heard_s >= _NOBODY_S or self._silence.is_missing(asked))
            is_given_up = isinstance(trouble, RequestTimeout) or (is_gone and not self._silence.bears_restarts)
            is_over = patience_s is not None and is_given_up
            if is_over or now + pause_s >= deadline or (doubt is not None and not repeatable):
                last = said or trouble
                raise await self._unanswered(verb, now - started, last, asked, maybe_done=doubt is not None) from last
            await anyio.sleep(pause_s)

    def _give_up_if_blocked(
        self, verb: str, started_s: float, trouble: BusError | Refused, *, maybe_done: bool
    ) -> None:
        if why := self._blocked():
            waited_s = self._clock.steady_s() - started_s
            raise Unanswered(verb, waited_s, why, maybe_done=maybe_done and reading_of(verb) is None) from trouble

    async def _unanswered(
        self, verb: str, waited_s: float, why: BusError | Refused, asked: Asked, *, maybe_done: bool = False
    ) -> Unanswered:
        silent = asked.name if isinstance(why, RequestTimeout | NoResponders) else ""
        if silent and not self._silence.holds(silent):
            known = await self._state(asked, is_heard=isinstance(why, RequestTimeout))
            self._silence.begin(silent, verb, known)
        elif silent:
            self._silence.begin(silent, verb)
        words = self._silence.why(silent) if silent else ""
        reads = reading_of(verb) is not None
        nobody_did_it = reads or words == unserved(asked.tree)
        reason = why.refusal.reason() if isinstance(why, Refused) else str(why)
        return Unanswered(verb, waited_s, reason, maybe_done=maybe_done and not nobody_did_it, who=silent, state=words)

    async def _state(self, asked: Asked, *, is_heard: bool) -> str:
        """Return why a service does not answer. If the missing answer alone does not show the reason, ask all processes."""
        views = self._silence.processes
        # That the request was received does not show that a process serves the right tree: the subjects of fair_share do not name a tree,
        # so processes of other trees receive the request too.
        if views is None and (not is_heard or asked.service == _FAIR_SHARE):
            with contextlib.suppress(BusError):
                views, _ = await ask_all(self._bus, self._subject_of("service.list"), ListServices(), ServiceView)
                self._silence.note_processes(views)
        return asked.state(views or (), is_heard=is_heard)

    def _without_lost_revision(
        self, request: msgspec.Struct, data: bytes, refusal: Refusal
    ) -> tuple[msgspec.Struct, bytes]:
        """Lower the request's `min_revision` to the newest existing revision, if the revision that it names no longer exists."""
        newest = refusal.revision if isinstance(refusal, NotReady) else None
        if newest is None or getattr(request, "min_revision", 0) <= newest:
            return request, data
        self.revision = min(self.revision, newest)
        request = msgspec.structs.replace(request, min_revision=newest)
        return request, encode_request(request)

    async def _attempt(self, who: str, verb: str, data: bytes, kind: type[T], timeout_s: float) -> T:
        try:
            answer = await self._bus.request(self._subject_of(verb), data, timeout_s=timeout_s)
        except (NoResponders, NotConnected, RequestTimeout):
            raise
        except BusError as error:
            raise Unanswered(verb, 0.0, str(error), maybe_done=False) from error
        self._silence.end(who)
        try:
            message = decode_answer(answer, kind)
        except BadMessage as error:
            words = f"the answer cannot be read: {shortened(str(error))}"
            raise Unreadable(verb, 0.0, words, maybe_done=reading_of(verb) is None) from None
        if isinstance(message, Refusal):
            raise Refused(message)
        return message
