"""The tables of all subjects with their senders and receivers, and of all buckets and streams with their writers and readers.

`headrace.access.permissions` builds the permissions of each credential from these tables, and the server refuses everything else. `{node}`,
`{host}`, `{user}` and `{tree}` are placeholders. In the permissions of the party that a placeholder names, the placeholder stands for the
party's own name or tree. In the permissions of the party on the other side, the placeholder stands for any name.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.wire import subjects


class PartyKind(enum.Enum):
    """The kinds of credential holders."""

    ADMISSION = "admission"
    FAIR_SHARE = "fair_share"
    INTEGRAL = "integral"
    ALLOCATOR = "allocator"
    NODE = "node"
    #: The holder of a join token. Its name is its public key.
    HOST = "host"
    PERSON = "user"
    PROVISIONER = "provisioner"

    @property
    def is_service(self) -> bool:
        """True for the four services, which lead or stand by for a role."""
        return self not in (PartyKind.NODE, PartyKind.HOST, PartyKind.PERSON, PartyKind.PROVISIONER)

    @property
    def inbox(self) -> str:
        """The inbox prefix of this kind, with a placeholder such as `{node}` if each party has its own inboxes."""
        if self.is_service or self is PartyKind.PROVISIONER:
            return subjects.inbox("service", self.value.replace("_", "-"))
        return subjects.inbox(self.value, f"{{{self.value}}}")


_SERVICES: Final = tuple(kind for kind in PartyKind if kind.is_service)
_ADMISSION, _FAIR_SHARE = PartyKind.ADMISSION, PartyKind.FAIR_SHARE
_INTEGRAL, _ALLOCATOR = PartyKind.INTEGRAL, PartyKind.ALLOCATOR
_NODE, _PERSON = PartyKind.NODE, PartyKind.PERSON


class Reach(enum.IntEnum):
    """What a person's credential allows. Each reach includes the reaches before it."""

    #: Requests that change nothing, and the request to end the token itself: the reach of a token made with `--read-only`.
    READ = 0
    #: All requests but requests about other tokens: the reach of every other token. So nobody can use a stolen token to make a token that
    #: lasts longer.
    CHANGE = 1
    #: All requests: the reach of the person's own credential.
    WHOLE = 2


class Route(msgspec.Struct, frozen=True):
    """One subject with its senders and receivers. Answers to a request go to the sender's inbox."""

    subject: str
    senders: tuple[PartyKind, ...]
    receivers: tuple[PartyKind, ...]
    #: True if messages on the subject are answered.
    is_request: bool = True
    #: Least reach of the credential with which a person may send.
    reach: Reach = Reach.CHANGE


class StoreKind(enum.Enum):
    """The uses of a JetStream stream."""

    BUCKET = "bucket"
    LOG = "log"
    RECORDS = "records"


class Store(msgspec.Struct, frozen=True):
    """One bucket or stream. Only the provisioner may create it. Nodes and persons have no access."""

    kind: StoreKind
    #: Name of the bucket or the stream, with `{tree}` if each tree has its own.
    name: str
    #: Each writer with the keys that it writes. `{role}` is the writer's role, `>` any key. The key of a log is its subject.
    writers: tuple[tuple[PartyKind, str], ...]
    #: Services that read the store but never write to it.
    readers: tuple[PartyKind, ...]
    history: int = 1
    #: True if the writers of the store remove entries that they no longer need.
    is_purged: bool = False
    #: True if readers list or follow the whole store, for which they need a consumer. In other stores readers request single keys.
    is_read_whole: bool = True
    #: Services that subscribe to the writes of a bucket, and so learn of each write at once.
    hearers: tuple[PartyKind, ...] = ()

    @property
    def stream(self) -> str:
        """The name of the store's stream at the server."""
        return f"KV_{self.name}" if self.kind is StoreKind.BUCKET else self.name

    def is_used_by(self, kind: PartyKind) -> bool:
        """True if this kind of service reads from the store or writes to it."""
        return kind in self.readers or kind in (writer for writer, _ in self.writers)


def _of_person(receiver: PartyKind | tuple[PartyKind, ...], *verbs: str, reach: Reach = Reach.CHANGE) -> list[Route]:
    receivers = receiver if isinstance(receiver, tuple) else (receiver,)
    return [Route(subjects.user("{user}", verb), (_PERSON,), receivers, reach=reach) for verb in verbs]


#: Every subject that messages are sent to.
ROUTES: Final[tuple[Route, ...]] = (
    *_of_person(
        _ADMISSION,
        *("op.start", "op.update", "op.suspend", "op.resume", "op.complete", "op.abort", "op.scan", "op.upload"),
        *("node.change", "node.token", "group.change"),
    ),
    *_of_person(
        _ADMISSION,
        *("op.plan_start", "op.get", "op.list", "op.jobs", "op.explain", "op.history", "op.log"),
        *("pool.counts", "pool.lost_work", "consumption", "rights", "group.get", "group.list", "token.end"),
        reach=Reach.READ,
    ),
    *_of_person(_ADMISSION, "token.create", "token.list", "token.revoke", reach=Reach.WHOLE),
    *_of_person(_FAIR_SHARE, "pool.change", "pool.move_to_tree", "tree.create", "tree.remove"),
    *_of_person(
        _FAIR_SHARE,
        *("pool.list", "pool.explain", "pool.history", "pool.what_if", "tree.list"),
        reach=Reach.READ,
    ),
    *_of_person(
        _ALLOCATOR,
        *(
            subjects.of_tree(verb, "{tree}")
            for verb in ("op.where", "op.why", "op.fit", "op.progress", "node.list", "preemption.observed")
        ),
        reach=Reach.READ,
    ),
    *_of_person(_SERVICES, "service.list", reach=Reach.READ),
    *_of_person((*_SERVICES, _NODE), "service.figures", reach=Reach.READ),
    *_of_person(_NODE, "job.logs.{node}", reach=Reach.READ),
    *_of_person(_NODE, "job.session.{node}", "debug.heartbeat.{node}"),
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
    Route(subjects.GROUPS_OF, (_FAIR_SHARE,), (_ADMISSION,)),
    Route(subjects.OPERATIONS_WHOLE, (_ALLOCATOR, _FAIR_SHARE), (_ADMISSION,)),
    # Events contain the commands and environments of all users' operations, so persons may not receive them.
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
    # Nodes may answer as well, because they remember the terms of their allocators.
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
    _bucket(subjects.CONSUMPTION_BUCKET, (_ADMISSION, ">"), is_purged=True),
    _bucket(subjects.ARCHIVES_BUCKET, (_ADMISSION, ">"), is_purged=True),
    _bucket(subjects.PIECES_BUCKET, (_ADMISSION, ">"), is_purged=True, is_read_whole=False),
    _bucket(subjects.CLOCKS_BUCKET, (_FAIR_SHARE, "{tree}.*")),
    _bucket(subjects.VOLUMES_BUCKET, (_INTEGRAL, "{tree}"), (_INTEGRAL, "{tree}.>"), is_purged=True),
    *(
        store
        for name, history, writers, readers, hearers in (
            # Fair share may write the keys of all trees: a process of one tree may change the configuration of a tree that no process
            # serves.
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
            # `>` covers keys of several tokens: the name of a group may have dots, and a dot separates the tokens of a key.
            (subjects.GROUPS_BUCKET, 1, ((_ADMISSION, ">"),), (), ()),
        )
        for store in (
            _bucket(name, *writers, readers=readers, history=history, hearers=hearers),
            # A writer restores a lost value from its copy, and a lost copy from its value.
            _bucket(subjects.copies_of(name), *writers),
        )
    ),
)
