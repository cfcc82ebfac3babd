"""The tables of all subjects with their two sides, and of all buckets and streams with their writers and readers.

`headrace.access.permissions` makes the rights of each credential from it, and the server refuses everything else.
`{node}`, `{host}`, `{user}` and `{tree}` stand for a name: the party's own, or its tree, and any name for the other side.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.wire import subjects


class PartyKind(enum.Enum):
    """The kinds of holders of credentials."""

    ADMISSION = "admission"
    FAIR_SHARE = "fair_share"
    INTEGRAL = "integral"
    ALLOCATOR = "allocator"
    NODE = "node"
    #: The holder of a token, by whose public key it is named.
    HOST = "host"
    PERSON = "user"
    PROVISIONER = "provisioner"

    @property
    def is_service(self) -> bool:
        """True if it is one of the four services, which lead or stand by for a role."""
        return self not in (PartyKind.NODE, PartyKind.HOST, PartyKind.PERSON, PartyKind.PROVISIONER)

    @property
    def inbox(self) -> str:
        """The prefix of the inboxes of this kind, with its name in braces where each has its own."""
        if self.is_service or self is PartyKind.PROVISIONER:
            return subjects.inbox("service", self.value.replace("_", "-"))
        return subjects.inbox(self.value, f"{{{self.value}}}")


_SERVICES: Final = tuple(kind for kind in PartyKind if kind.is_service)
_ADMISSION, _FAIR_SHARE = PartyKind.ADMISSION, PartyKind.FAIR_SHARE
_INTEGRAL, _ALLOCATOR = PartyKind.INTEGRAL, PartyKind.ALLOCATOR
_NODE, _PERSON = PartyKind.NODE, PartyKind.PERSON


class Route(msgspec.Struct, frozen=True):
    """One subject with its two sides. Answers of a request go to the inbox of whoever asked."""

    subject: str
    senders: tuple[PartyKind, ...]
    receivers: tuple[PartyKind, ...]
    #: True if it is answered.
    is_request: bool = True


class StoreKind(enum.Enum):
    """The uses of a stream of JetStream."""

    BUCKET = "bucket"
    LOG = "log"
    RECORDS = "records"


class Store(msgspec.Struct, frozen=True):
    """One bucket or stream. The provisioner alone makes it. Nodes and persons reach none."""

    kind: StoreKind
    #: Of the bucket or the stream, with `{tree}` where each tree has its own.
    name: str
    #: Each writer with the keys that it writes. `{role}` is its own role, `>` any key; the key of a log is its subject.
    writers: tuple[tuple[PartyKind, str], ...]
    #: Those who write nothing to it.
    readers: tuple[PartyKind, ...]
    history: int = 1
    #: True if its writers remove what they need no more.
    is_purged: bool = False
    #: True if it is listed or followed, which takes a consumer. Of others each key is asked for.
    is_read_whole: bool = True
    #: Those who hear each write to a bucket while it is made.
    hearers: tuple[PartyKind, ...] = ()

    @property
    def stream(self) -> str:
        """The name of its stream at the server."""
        return f"KV_{self.name}" if self.kind is StoreKind.BUCKET else self.name

    def is_used_by(self, kind: PartyKind) -> bool:
        """True if this kind of service reads it or writes to it."""
        return kind in self.readers or kind in (writer for writer, _ in self.writers)


def _of_person(receiver: PartyKind | tuple[PartyKind, ...], *verbs: str) -> list[Route]:
    receivers = receiver if isinstance(receiver, tuple) else (receiver,)
    return [Route(subjects.user("{user}", verb), (_PERSON,), receivers) for verb in verbs]


#: Every subject that is sent to.
ROUTES: Final[tuple[Route, ...]] = (
    *_of_person(
        _ADMISSION,
        *(
            "op.start",
            "op.plan_start",
            "op.update",
            "op.suspend",
            "op.resume",
            "op.complete",
            "op.abort",
            "op.scan",
            "op.upload",
        ),
        *(
            "op.get",
            "op.list",
            "op.jobs",
            "op.explain",
            "op.history",
            "op.log",
            "pool.counts",
            "pool.lost_work",
            "node.change",
            "node.token",
            "rights",
        ),
    ),
    *_of_person(
        _FAIR_SHARE, *("pool.list", "pool.explain", "pool.change", "pool.move_to_tree", "pool.history", "pool.what_if")
    ),
    *_of_person(_FAIR_SHARE, "tree.list", "tree.create", "tree.remove"),
    *_of_person(
        _ALLOCATOR,
        *(
            subjects.of_tree(verb, "{tree}")
            for verb in ("op.where", "op.why", "op.fit", "op.progress", "node.list", "preemption.observed")
        ),
    ),
    *_of_person(_SERVICES, "service.list"),
    *_of_person((*_SERVICES, _NODE), "service.figures"),
    *_of_person(_NODE, "job.logs.{node}", "debug.heartbeat.{node}"),
    Route(subjects.heartbeat("{tree}", "{node}"), (_NODE,), (_ALLOCATOR,)),
    Route(subjects.enrol("{node}"), (_NODE,), (_ADMISSION,)),
    Route(subjects.log_reader("{node}"), (_NODE,), (_ADMISSION,)),
    Route(subjects.fetch_piece("{node}"), (_NODE,), (_ADMISSION,)),
    Route(subjects.ask_over("{node}"), (_NODE,), (_ADMISSION,)),
    Route(subjects.join("{host}"), (PartyKind.HOST,), (_ADMISSION,)),
    Route(subjects.renew("{node}"), (_NODE,), (_ADMISSION,)),
    Route(subjects.nudge("{node}"), (_ALLOCATOR,), (_NODE,), is_request=False),
    Route(subjects.give_up_node("{tree}"), (_ADMISSION,), (_ALLOCATOR,)),
    Route(subjects.WANTED, (_ALLOCATOR,), (_ALLOCATOR,), is_request=False),
    *(
        Route(subjects.ledger(verb), (_ALLOCATOR,), (_ADMISSION,))
        for verb in ("attach", "draw", "return", "report", "released")
    ),
    Route(subjects.OPERATIONS_WHOLE, (_ALLOCATOR, _FAIR_SHARE), (_ADMISSION,)),
    # It has commands and environments of everybody's operations.
    Route(subjects.EVENTS, (_ADMISSION,), (_ALLOCATOR, _FAIR_SHARE), is_request=False),
    Route(subjects.HAPPENINGS, (_ADMISSION,), (_PERSON,), is_request=False),
    Route(subjects.operation_view("{user}", "*"), (_ADMISSION,), (_PERSON,), is_request=False),
    Route(subjects.share("{tree}"), (_FAIR_SHARE,), (_ALLOCATOR, _PERSON), is_request=False),
    Route(subjects.share_whole("{tree}"), (_ALLOCATOR,), (_FAIR_SHARE,)),
    Route(subjects.usage("{tree}"), (_ALLOCATOR,), (_FAIR_SHARE,), is_request=False),
    Route(subjects.usage_whole("{tree}"), (_FAIR_SHARE,), (_ALLOCATOR,)),
    Route(subjects.decisions("{tree}"), (_ALLOCATOR,), (_PERSON,), is_request=False),
    Route(subjects.integral_advance("{tree}"), (_FAIR_SHARE,), (_INTEGRAL,)),
    Route(subjects.integral_volumes("{tree}"), (_FAIR_SHARE,), (_INTEGRAL,)),
    # Nodes remember the terms of their allocators.
    Route(subjects.WHO, _SERVICES, (*_SERVICES, _NODE)),
    Route(subjects.FIGURES, (_ADMISSION,), (*_SERVICES, _NODE)),
)


def _bucket(
    name: str,
    *writers: tuple[PartyKind, str],
    readers: tuple[PartyKind, ...] = (),
    history: int = 1,
    is_purged: bool = False,
    is_read_whole: bool = True,
    hearers: tuple[PartyKind, ...] = (),
) -> Store:
    return Store(StoreKind.BUCKET, name, writers, readers, history, is_purged, is_read_whole, hearers)


#: Every bucket and stream.
STORES: Final[tuple[Store, ...]] = (
    Store(
        StoreKind.LOG,
        subjects.STREAM,
        ((_ADMISSION, subjects.LOG),),
        (_ALLOCATOR, _FAIR_SHARE),
        is_purged=True,
    ),
    Store(StoreKind.RECORDS, subjects.history_stream("{tree}"), ((_FAIR_SHARE, subjects.history("{tree}")),), ()),
    _bucket(subjects.TERMS_BUCKET, *((kind, "{role}") for kind in _SERVICES), is_read_whole=False),
    _bucket(subjects.LEASES_BUCKET, *((kind, "{role}") for kind in _SERVICES), is_read_whole=False),
    _bucket(subjects.CHECKPOINT_BUCKET, (_ADMISSION, ">"), is_purged=True),
    _bucket(subjects.ARCHIVES_BUCKET, (_ADMISSION, ">"), is_purged=True),
    _bucket(subjects.PIECES_BUCKET, (_ADMISSION, ">"), is_purged=True, is_read_whole=False),
    _bucket(subjects.CLOCKS_BUCKET, (_FAIR_SHARE, "{tree}.*")),
    _bucket(subjects.VOLUMES_BUCKET, (_INTEGRAL, "{tree}"), (_INTEGRAL, "{tree}.>"), is_purged=True),
    *(
        store
        for name, history, writers, readers, hearers in (
            # A process of another tree may change the configuration of a tree that nobody serves.
            (
                subjects.POOLS_BUCKET,
                subjects.POOLS_HISTORY,
                ((_FAIR_SHARE, "*"), (_ADMISSION, "*")),
                (_ALLOCATOR,),
                (_ADMISSION,),
            ),
            (subjects.NODES_BUCKET, 1, ((_ADMISSION, "*"), (_ALLOCATOR, "*")), (_FAIR_SHARE,), ()),
            (subjects.NODE_LEASES_BUCKET, 1, ((_ALLOCATOR, "*"),), (_ADMISSION,), ()),
            (subjects.KEYS_BUCKET, 1, ((_ADMISSION, "*"),), (), ()),
        )
        for store in (
            _bucket(name, *writers, readers=readers, history=history, hearers=hearers),
            # Whoever finds a value lost writes it again from its copy, and the other way round.
            _bucket(subjects.copies_of(name), *writers),
        )
    ),
)
