"""The permissions of each credential at the server, built from the tables of `headrace.access.routes`.

A party that answers requests may publish into the inboxes of the parties that may send these requests, and into no other inbox. So a
request with a forged reply subject gets no answer. The server's own `allow_responses` would let a node publish to any subject that an
accomplice chooses for the answer. The names of inboxes cannot be guessed. The name of a node or a person is part of its subjects, so that
no node or person can publish or subscribe in place of another node or person.

A service chooses the subject under which JetStream delivers messages or sends answers. nats-server (2.15.1, tried) does not check the
service's permissions for that subject, neither for the `deliver_subject` of a consumer nor for the reply subject of a pull. So permissions
cannot keep a service from storing a message in another service's stream. Readers ignore such messages. They recognize them because a
delivered message keeps its original subject in the stream that stores it (`ForeignEntries.is_foreign`). No service may use direct gets,
because the server would send the answers under any subject that the service chooses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from headrace.access.routes import ROUTES, STORES, PartyKind, Reach, Store, StoreKind
from headrace.ids import GroupName, TreeName
from headrace.wire import subjects


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of one credential."""

    kind: PartyKind
    #: Name of the node, host or person; `*` means any.
    name: str = "*"
    #: The tree that a service or a node belongs to; `*` means any.
    tree: TreeName | str = "*"
    #: What a person's credential allows.
    reach: Reach = Reach.WHOLE
    #: Groups that a person's credential names. They give no permissions at the server.
    groups: tuple[GroupName, ...] = ()

    @property
    def role(self) -> str:
        """The role that a service leads or stands by for."""
        return self.kind.value if self.kind is PartyKind.ADMISSION else f"{self.kind.value}.{self.tree}"

    @property
    def inbox(self) -> str:
        """The prefix of the party's own inboxes."""
        return _filled(self.kind.inbox, **{self.kind.value: self.name})


#: Largest number of subscriptions of one connection of a person or a host. A client that follows a tree has fewer than
#: twenty.
MOST_SUBSCRIPTIONS: Final = 100
#: Largest number of subscriptions of one connection of a node. A node has two subscriptions for each person and each of four kinds of
#: requests; the limit suffices for 1,024 persons.
MOST_SUBSCRIPTIONS_OF_A_NODE: Final = 10_000
#: Largest number of subscriptions of one connection of a service. A service has two subscriptions for each person and each of some 30 kinds
#: of requests; the limit suffices for 1,024 persons. The configuration of the server allows no connection more than this, whatever its
#: credential says.
MOST_SUBSCRIPTIONS_OF_A_SERVICE: Final = 80_000


class Permissions(msgspec.Struct, frozen=True):
    """Subjects that a credential may publish to and subscribe to. Everything else is refused.

    If a subject is followed by the name of a queue group, it may be subscribed to only in that group.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    #: Largest number of subscriptions that one connection may have at a time.
    most_subscriptions: int = MOST_SUBSCRIPTIONS


def permissions_of(party: Party) -> Permissions:
    """Return the permissions of one credential."""
    publish: set[str] = set()
    subscribe = _rights_in_inbox(party)
    for route in ROUTES:
        if party.kind in route.senders and party.reach >= route.reach:
            publish.add(_of(party, route.subject))
        if party.kind in route.receivers:
            subscribe.add(_of(party, route.subject))
            if route.is_request:
                publish.update(f"{_of_anybody(kind.inbox)}.>" for kind in route.senders)
    if party.kind is PartyKind.NODE:
        subscribe |= {"$SRV.PING"}
    if party.kind.is_service:
        subscribe |= {"$SRV.>"}
        publish |= {f"{_of_anybody(PartyKind.PERSON.inbox)}.>"}
        for store in STORES:
            publish.update(_rights_in(store, party))
            if party.kind in store.hearers:
                subscribe.add(f"$KV.{store.name}.>")
    if party.kind is PartyKind.PROVISIONER:
        # The provisioner may make the stores of all trees, because a tree that is added later has stores of its own.
        publish.update(f"$JS.API.STREAM.{verb}.*" for verb in ("INFO", "CREATE", "UPDATE"))
        publish.add("$JS.API.STREAM.NAMES")
    most = MOST_SUBSCRIPTIONS_OF_A_SERVICE if party.kind.is_service else MOST_SUBSCRIPTIONS
    most = MOST_SUBSCRIPTIONS_OF_A_NODE if party.kind is PartyKind.NODE else most
    return Permissions(tuple(sorted(publish)), tuple(sorted(subscribe)), most)


def streams_of(party: Party) -> list[str]:
    """Return the streams that a service needs, including the streams of its buckets."""
    return [_of(party, store.stream) for store in STORES if store.is_used_by(party.kind)]


def server_users(users: Mapping[Party, Mapping[str, str]]) -> str:
    """Return the `authorization` block of a NATS server. `users` maps each party to its proof: `user` and `password`, or an
    `nkey`.
    """
    entries = ",\n".join(f"    {_entry(party, proof)}" for party, proof in users.items())
    return f"authorization {{\n  users = [\n{entries}\n  ]\n}}\n"


def _entry(party: Party, proof: Mapping[str, str]) -> str:
    own = permissions_of(party)
    permissions = {"publish": list(own.publish), "subscribe": list(own.subscribe)}
    told = ", ".join(f"{key}: {json.dumps(value)}" for key, value in {**proof, "permissions": permissions}.items())
    return f"{{ {told} }}"


def _rights_in_inbox(party: Party) -> set[str]:
    if party.kind is not PartyKind.PERSON:
        return {f"{party.inbox}.>"}
    asked = f"{subjects.asks_from(f'{party.inbox}.*')}.*"
    return {asked, f"{subjects.answers_at(asked)} {subjects.INBOX_QUEUE}"}


def _rights_in(store: Store, party: Party) -> Iterator[str]:
    """Yield the JetStream subjects with which a service reads a store and writes its own keys."""
    stream = _of(party, store.stream)
    keys = [key for kind, key in store.writers if kind is party.kind]
    if not store.is_used_by(party.kind):
        return
    api = "$JS.API"
    yield f"{api}.STREAM.INFO.{stream}"
    yield f"{api}.STREAM.MSG.GET.{stream}"
    if store.is_read_whole:
        yield f"{api}.CONSUMER.CREATE.{stream}.*"
        yield f"{api}.CONSUMER.DELETE.{stream}.*"
        yield f"{api}.CONSUMER.MSG.NEXT.{stream}.*"
    if not keys:
        return
    if store.is_purged:
        yield f"{api}.STREAM.PURGE.{stream}"
    prefix = f"$KV.{store.name}." if store.kind is StoreKind.BUCKET else ""
    for key in keys:
        yield prefix + _of(party, key.replace("{role}", party.role))


def _of(party: Party, subject: str) -> str:
    """Return a subject of the table for one party: its own name and tree are filled in, and `*` for names of other parties."""
    own = {} if party.kind.is_service else {party.kind.value: party.name}
    return _of_anybody(_filled(subject, tree=str(party.tree), **own))


def _of_anybody(subject: str) -> str:
    return _filled(subject, user="*", node="*", host="*", tree="*").replace(".*.>", ".>")


def _filled(subject: str, **names: str) -> str:
    for place, name in names.items():
        subject = subject.replace(f"{{{place}}}", name)
    return subject
