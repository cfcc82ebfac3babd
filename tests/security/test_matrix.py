"""Every subject, tried with every credential: the server allows what `PROMISED` says, and refuses everything else.

`PROMISED` and `STORES_PROMISED` are written by hand and say who may publish and who may subscribe. They are not made from
`headrace.access.permissions`, which they check. What is tried is made from the tables of subjects and stores and from these tables:
each subject under the credential's own names and under the names of others, its wildcards, what is above it and what is below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import pytest

from headrace.access.jwt import claims_of
from headrace.access.key_credential import KeyCredential
from headrace.access.permissions import Party
from headrace.access.routes import ROUTES, STORES, PartyKind, Reach, StoreKind
from headrace.wire.subjects import INBOX_QUEUE
from tests.support.bare_connection import BareConnection, NotLetIn
from tests.support.secured_cluster import Cluster, Server

SERVICES: Final = "admission fair_share integral allocator"


class Promise(NamedTuple):
    """Subjects with the holders who may publish and those who may subscribe. `{user}` and the like: the holder's own name.

    `in the queue` stands for holders who may subscribe there in the queue group of inboxes alone.
    """

    publishers: str
    subscribers: str
    subjects: Sequence[str]


#: Holders of a person's credential, of a token of the person, and of a token that only reads.
PERSONS: Final = "person program reader"


def of_person(subscribers: str, *verbs: str, publishers: str = "person program") -> Promise:
    return Promise(publishers, subscribers, [f"headrace.v1.user.{{user}}.{verb}" for verb in verbs])


def read_by_person(subscribers: str, *verbs: str) -> Promise:
    return of_person(subscribers, *verbs, publishers=PERSONS)


def _subscribers(row: Promise) -> list[str]:
    return [] if row.subscribers.endswith(" in the queue") else row.subscribers.split()


PROMISED: Final = (
    # Requests of persons, each in their own name.
    of_person(
        "admission",
        *("op.start", "op.update", "op.suspend", "op.resume", "op.complete", "op.abort", "op.scan", "op.upload"),
        *("node.change", "node.token", "group.change"),
    ),
    read_by_person(
        "admission",
        *("op.plan_start", "op.get", "op.list", "op.jobs", "op.explain", "op.history", "op.log", "pool.counts"),
        *("pool.lost_work", "consumption", "rights", "group.get", "group.list", "token.end"),
    ),
    of_person("admission", "token.create", "token.list", "token.revoke", publishers="person"),
    of_person("fair_share", "pool.change", "pool.move_to_tree", "tree.create", "tree.remove"),
    read_by_person("fair_share", "pool.list", "pool.explain", "pool.history", "pool.what_if", "tree.list"),
    read_by_person(
        "allocator",
        *("op.where.{tree}", "op.why.{tree}", "op.fit.{tree}", "op.progress.{tree}", "node.list.{tree}"),
        "preemption.observed.{tree}",
    ),
    read_by_person(SERVICES, "service.list"),
    read_by_person(f"{SERVICES} node", "service.figures"),
    read_by_person("node", "job.logs.{node}"),
    of_person("node", "job.session.{node}", "debug.heartbeat.{node}"),
    # News for persons.
    Promise("admission", PERSONS, ["headrace.v1.happenings", "headrace.v1.view.{user}.*"]),
    Promise("allocator", PERSONS, ["headrace.v1.{tree}.decisions"]),
    Promise("fair_share", f"{PERSONS} allocator", ["headrace.v1.{tree}.share"]),
    # Requests of nodes, each in its own name, and of a host with its token.
    Promise("node", "allocator", ["headrace.v1.{tree}.hb.{node}"]),
    Promise(
        "node",
        "admission",
        [f"headrace.v1.{verb}.{{node}}" for verb in ("enrol", "log_reader", "fetch_piece", "ask_over", "renew")],
    ),
    Promise("host", "admission", ["headrace.v1.join.{host}"]),
    Promise("allocator", "node", ["headrace.v1.cmd.{node}.nudge"]),
    # Services among themselves.
    Promise("admission", "allocator", ["headrace.v1.{tree}.node.give_up"]),
    Promise("allocator", "allocator", ["headrace.v1.wanted"]),
    Promise(
        "allocator",
        "admission",
        [f"headrace.v1.ledger.{verb}" for verb in ("attach", "draw", "return", "report", "released")],
    ),
    Promise("fair_share", "admission", ["headrace.v1.groups_of"]),
    Promise("allocator fair_share", "admission", ["headrace.v1.operations.whole"]),
    Promise("admission", "allocator fair_share", ["headrace.v1.events"]),
    Promise("allocator", "fair_share", ["headrace.v1.{tree}.share.whole", "headrace.v1.{tree}.usage"]),
    Promise("fair_share", "allocator", ["headrace.v1.{tree}.usage.whole"]),
    Promise("fair_share", "integral", ["headrace.v1.{tree}.integral.advance", "headrace.v1.{tree}.integral.volumes"]),
    Promise(SERVICES, f"{SERVICES} node", ["headrace.v1.who"]),
    Promise("admission", f"{SERVICES} node", ["headrace.v1.figures"]),
    # Answers, at inboxes whose names cannot be guessed. Who is asked may answer, and only the party itself hears it.
    Promise(f"{SERVICES} node", "", ["_INBOX.user.{user}.>"]),
    # The server itself says at the one that nobody serves a request.
    Promise("", PERSONS, ["_INBOX.user.{user}.*.asked.*"]),
    Promise("", f"{PERSONS} in the queue", ["_INBOX.user.{user}.*.answered.*"]),
    Promise("admission allocator", "node", ["_INBOX.node.{node}.>"]),
    Promise("admission", "host", ["_INBOX.host.{host}.>"]),
    Promise(f"{SERVICES} node", "admission", ["_INBOX.service.admission.>"]),
    Promise(f"{SERVICES} node", "fair_share", ["_INBOX.service.fair-share.>"]),
    Promise(f"{SERVICES} node", "allocator", ["_INBOX.service.allocator.>"]),
    Promise(f"{SERVICES} node", "integral", ["_INBOX.service.integral.>"]),
    Promise("", "provisioner", ["_INBOX.service.provisioner.>"]),
    Promise("", "system watcher", ["_INBOX.service.operator.>"]),
    # Discovery of services.
    Promise("", SERVICES, ["$SRV.>"]),
    Promise("", "node", ["$SRV.PING"]),
    # Streams are made by the provisioner alone.
    Promise("provisioner", "", [f"$JS.API.STREAM.{verb}.*" for verb in ("INFO", "CREATE", "UPDATE")]),
    Promise("provisioner", "", ["$JS.API.STREAM.NAMES"]),
    # Who may enter is told to the server by two users of its own account, for the one account of the cluster.
    Promise("system watcher", "", [f"$SYS.REQ.ACCOUNT.{{account}}.CLAIMS.{verb}" for verb in ("UPDATE", "LOOKUP")]),
    # Admission also reads what the connections of the account send.
    Promise("watcher", "", [f"$SYS.REQ.ACCOUNT.{{account}}.{verb}" for verb in ("STATZ", "CONNZ")]),
)


class StorePromise(NamedTuple):
    """A bucket or stream, with the services that write and the services that only read. Nobody else reaches it."""

    name: str
    #: Each writer with the keys that it writes.
    writers: Mapping[str, Sequence[str]]
    readers: str = ""
    #: True if its readers and writers may list and follow it, by a consumer.
    is_followed: bool = True
    is_purged: bool = False
    #: Services that hear each write at once.
    hearers: str = ""


ROLES: Final = {
    "admission": ["admission"],
    **{name: [f"{name}.{{tree}}"] for name in ("fair_share", "integral", "allocator")},
}
STORES_PROMISED: Final = (
    StorePromise(
        "HEADRACE_OPERATIONS", {"admission": ["headrace.v1.log.operations"]}, "allocator fair_share", is_purged=True
    ),
    StorePromise("HEADRACE_HISTORY_{tree}", {"fair_share": ["headrace.v1.{tree}.history"]}),
    StorePromise("headrace_terms", ROLES, is_followed=False),
    StorePromise("headrace_leases", ROLES, is_followed=False),
    StorePromise("headrace_checkpoint", {"admission": [">"]}, is_purged=True),
    StorePromise("headrace_consumption", {"admission": [">"]}, is_purged=True),
    StorePromise("headrace_archives", {"admission": [">"]}, is_purged=True),
    StorePromise("headrace_pieces", {"admission": [">"]}, is_purged=True, is_followed=False),
    StorePromise("headrace_clocks", {"fair_share": ["{tree}.*"]}),
    StorePromise("headrace_volumes", {"integral": ["{tree}", "{tree}.>"]}, is_purged=True),
    StorePromise("headrace_pools", {"fair_share": ["*"], "admission": ["*"]}, "allocator", hearers="admission"),
    StorePromise("headrace_pools_copies", {"fair_share": ["*"], "admission": ["*"]}),
    StorePromise("headrace_nodes", {"admission": ["*"], "allocator": ["*"]}, "fair_share"),
    StorePromise("headrace_nodes_copies", {"admission": ["*"], "allocator": ["*"]}),
    StorePromise("headrace_node_leases", {"allocator": ["*"]}, "admission"),
    StorePromise("headrace_node_leases_copies", {"allocator": ["*"]}),
    StorePromise("headrace_keys", {"admission": ["*"]}),
    StorePromise("headrace_keys_copies", {"admission": ["*"]}),
    StorePromise("headrace_groups", {"admission": [">"]}),
    StorePromise("headrace_groups_copies", {"admission": [">"]}),
)

#: Requests of JetStream about a stream, each with its tokens after the stream's name. Most are for nobody.
API_OF_STREAM: Final = (
    *(f"STREAM.{verb}.{{stream}}" for verb in ("CREATE", "UPDATE", "DELETE", "INFO", "PURGE", "SNAPSHOT", "RESTORE")),
    *(f"STREAM.{verb}.{{stream}}" for verb in ("MSG.GET", "MSG.DELETE", "PEER.REMOVE", "LEADER.STEPDOWN")),
    *(f"CONSUMER.{verb}.{{stream}}" for verb in ("CREATE", "LIST", "NAMES")),
    *(f"CONSUMER.{verb}.{{stream}}.x" for verb in ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "PAUSE", "UNPIN")),
    *(f"CONSUMER.{verb}.{{stream}}.x" for verb in ("MSG.NEXT", "LEADER.STEPDOWN")),
    *("CONSUMER.CREATE.{stream}.x.y", "CONSUMER.CREATE.{stream}.x.y.z", "DIRECT.GET.{stream}", "DIRECT.GET.{stream}.x"),
)
API_OF_ACCOUNT: Final = (
    *("INFO", "STREAM.NAMES", "STREAM.LIST", "ACCOUNT.PURGE.x", "ACCOUNT.STREAM.MOVE.x.y", "META.LEADER.STEPDOWN"),
    *("SERVER.REMOVE", "STREAM.TEMPLATE.CREATE.x", "STREAM.TEMPLATE.NAMES"),
)
#: Subjects of the server and of NATS conventions that none of the tables names.
BESIDE: Final = (
    *(">", "*", "*.>", "*.*.*", "headrace.*.events", "headrace.v2.x", "headrace.v1.anything", "headrace.v1.log.x"),
    *(
        f"$SYS.REQ.SERVER.{verb}"
        for verb in ("PING", "PING.CONNZ", "PING.JSZ", "PING.VARZ", "X.RELOAD", "X.KICK", "X.LDM")
    ),
    *("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.{account}.CONNZ", "$SYS.REQ.ACCOUNT.{account}.SUBSZ"),
    *(
        "$SYS.REQ.ACCOUNT.{account}.INFO",
        "$SYS.REQ.ACCOUNT.X.CONNZ",
        "$SYS.REQ.ACCOUNT.X.CLAIMS.UPDATE",
        "$SYS.REQ.ACCOUNT.X.CLAIMS.LOOKUP",
    ),
    *(f"$SYS.REQ.CLAIMS.{verb}" for verb in ("UPDATE", "DELETE", "LIST", "PACK")),
    *(
        "$SYS.REQ.USER.INFO",
        "$SYS.ACCOUNT.{account}.CONNECT",
        "$SYS._INBOX.x",
        "$SYS.>",
        "$SYS.ACCOUNT.>",
        "$SYS.SERVER.>",
    ),
    *("$JS.>", "$JS.API.>", "$JS.EVENT.>", "$JS.EVENT.ADVISORY.API", "$JS.ACK.HEADRACE_OPERATIONS.x.1.1.1.1.0"),
    *(
        "$JS.FC.HEADRACE_OPERATIONS.x",
        "$JSC.>",
        "$KV.>",
        "$O.>",
        "$O.x.C.y",
        "$OBJ.x",
        "$SRV.>",
        "$SRV.STATS.admission",
    ),
    *(
        "$SRV.INFO",
        "$SRV.PING.admission",
        "$MQTT.>",
        "$MQTT.sub.x",
        "$G.>",
        "$NRG.>",
        "$NRG.x",
        "$GR.>",
        "$GNR.x",
        "$LDS.x",
    ),
    *(
        "_R_.x",
        "_REPLY_.x",
        "_GR_.>",
        "_INBOX.>",
        "_INBOX.*",
        "_INBOX.x",
        "_INBOX.user",
        "_INBOX.user.x",
        "_INBOX.service.x.y",
    ),
)

#: A name of another for each place in braces.
OTHERS: Final = {"user": "ben", "node": "n2", "host": "U" * 56, "tree": "west", "account": "A" * 56}


class Holder(NamedTuple):
    """Who holds a credential: its kind, and its own names. A name that it has not is any name."""

    kind: str
    credential: KeyCredential
    names: Mapping[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    path = tmp_path_factory.mktemp("secured")
    cluster = Cluster(path, nodes=["n1", "n2"], people=["anna", "ben", "eve"], administrators="eve")
    with Server(cluster.folder):
        yield cluster


@pytest.fixture(scope="module")
def holders(cluster: Cluster) -> dict[str, Holder]:
    """Every kind of credential that there is, by a name for it."""
    found = {}
    for person in ("anna", "ben", "eve"):
        credential = cluster.issued(f"client/people/{person}/credential")
        found[person] = Holder("person", credential, {"user": person})
    # Whoever administers the cluster may take any person's name with it.
    found["client"] = Holder("person", cluster.issued("client/credential"), {})
    for node in ("n1", "n2"):
        credential = cluster.issued(f"client/nodes/{node}/credential")
        found[node] = Holder("node", credential, {"node": node, "tree": "default"})
    joined = cluster.signed_for(Party(kind=PartyKind.NODE, name="joined", tree="default"))
    found["joined"] = Holder("node", joined, {"node": "joined", "tree": "default"})
    token = cluster.signed_for(Party(kind=PartyKind.HOST))
    found["token"] = Holder("host", token, {"host": claims_of(token.jwt)["sub"]})
    for kind, reach in (("program", Reach.CHANGE), ("reader", Reach.READ)):
        made = cluster.signed_for(Party(kind=PartyKind.PERSON, name="anna", reach=reach))
        found[kind] = Holder(kind, made, {"user": "anna"})
    for service in SERVICES.split():
        names = {} if service == "admission" else {"tree": "default"}
        found[service] = Holder(service, cluster.issued(f"{service}/credential"), names)
    found["provisioner"] = Holder("provisioner", cluster.issued("provisioner/credential"), {})
    account = {"account": cluster.account_authority().account}
    found["operator"] = Holder("system", cluster.issued("authority/credential"), account)
    found["admission of the system"] = Holder("watcher", cluster.account_authority().system, account)
    return found


def filled(pattern: str, names: Mapping[str, str]) -> str:
    """The pattern with these names in place of the braces, and `*` where there is none."""
    for place in OTHERS:
        pattern = pattern.replace(f"{{{place}}}", names.get(place, "*"))
    return pattern


def may_publish_to_store(store: StorePromise, kind: str) -> Iterator[str]:
    """What a kind of holder may publish about a store, beside its keys."""
    if kind not in (*store.writers, *store.readers.split()):
        return
    stream = stream_of(store)
    yield from (f"$JS.API.STREAM.{verb}.{stream}" for verb in ("INFO", "MSG.GET"))
    if store.is_followed:
        yield from (f"$JS.API.CONSUMER.{verb}.{stream}.*" for verb in ("CREATE", "DELETE", "MSG.NEXT"))
    if store.is_purged and kind in store.writers:
        yield f"$JS.API.STREAM.PURGE.{stream}"


def stream_of(store: StorePromise) -> str:
    return store.name if store.name.isupper() or store.name.startswith("HEADRACE_") else f"KV_{store.name}"


def subject_of_key(store: StorePromise, key: str) -> str:
    return key if stream_of(store) == store.name else f"$KV.{store.name}.{key}"


@cache
def promised(kind: str) -> tuple[frozenset[str], frozenset[str]]:
    """The patterns that a kind of holder may publish to, and those that it may subscribe to."""
    publish = {subject for row in PROMISED if kind in row.publishers.split() for subject in row.subjects}
    subscribe = {subject for row in PROMISED if kind in _subscribers(row) for subject in row.subjects}
    for store in STORES_PROMISED:
        publish |= set(may_publish_to_store(store, kind))
        publish |= {subject_of_key(store, key) for key in store.writers.get(kind, ())}
        if kind in store.hearers.split():
            subscribe.add(f"$KV.{store.name}.>")
    return frozenset(publish), frozenset(subscribe)


def of_inboxes(holder: Holder) -> list[str]:
    """The patterns that a holder may subscribe to in the queue group of inboxes alone."""
    rows = [
        row for row in PROMISED if row.subscribers.endswith(" in the queue") and holder.kind in row.subscribers.split()
    ]
    return [filled(subject, holder.names) for row in rows for subject in row.subjects]


def covers(pattern: str, subject: str) -> bool:
    """True if the server allows the subject, which may be a pattern itself, to a holder of the right to a pattern.

    The server compares token by token, and takes a `>` for a name: `*` covers it, so `a.*` allows `a.>`.
    """
    granted, asked = pattern.split("."), subject.split(".")
    for place, token in enumerate(granted):
        if token == ">":
            return len(asked) > place
        if place >= len(asked) or token not in ("*", asked[place]):
            return False
    return len(granted) == len(asked)


def named_in_tables() -> set[str]:
    """Every pattern that any table names."""
    found = {route.subject for route in ROUTES}
    found |= {subject for row in PROMISED for subject in row.subjects}
    for store in STORES_PROMISED:
        found |= {f"$JS.API.{request}".replace("{stream}", stream_of(store)) for request in API_OF_STREAM}
        keys = [key for keys in store.writers.values() for key in keys] or ["x"]
        found |= {subject_of_key(store, key) for key in keys}
        found |= {f"$KV.{store.name}.x", f"$KV.{store.name}.>"}
    found |= {f"$JS.API.{request}".replace("{stream}", "X") for request in API_OF_STREAM}
    found |= {f"$JS.API.{request}" for request in API_OF_ACCOUNT}
    return found | set(BESIDE)


def variants(holder: Holder) -> set[str]:
    """Subjects and patterns to try with a credential."""
    found: set[str] = set()
    for pattern in named_in_tables():
        for names in ({**OTHERS, **holder.names}, OTHERS, {}):
            subject = filled(pattern, names)
            tokens = subject.split(".")
            found |= {subject, f"{subject}.x" if tokens[-1] != ">" else subject}
            found |= {".".join([*tokens[:-1], last]) for last in ("x", "*", ">")}
            if len(tokens) > 1:
                found.add(".".join(tokens[:-1]))
        # Subjects above it, with wildcards.
        tokens = filled(pattern, {**OTHERS, **holder.names}).split(".")
        found |= {".".join([*tokens[:length], ">"]) for length in range(1, len(tokens))}
        found |= {".".join([*tokens[:place], "*", *tokens[place + 1 :]]) for place in range(len(tokens))}
    return {subject for subject in found if subject.find(">") in (-1, len(subject) - 1)}


def test_every_subject_and_every_store_has_a_promise() -> None:
    promised_subjects = {subject for row in PROMISED for subject in row.subjects}
    routes = {route.subject for route in ROUTES}

    assert routes - promised_subjects == set()
    # A promise about a subject that there is no more is removed.
    assert {subject for subject in promised_subjects if subject.startswith("headrace.")} - routes == set()
    assert {store.name for store in STORES_PROMISED} == {store.name for store in STORES}
    is_bucket = {store.name for store in STORES if store.kind is StoreKind.BUCKET}
    assert {store.name for store in STORES_PROMISED if stream_of(store) != store.name} == is_bucket


@pytest.mark.parametrize("kind", sorted({kind for row in PROMISED for kind in _subscribers(row)}))
def test_below_a_star_at_the_end_of_a_right_stands_no_subject(kind: str) -> None:
    """The server allows a subscription to `a.>` by the right to `a.*`, which hears `a.b.c` as well."""
    every_subject = {filled(subject, {}) for subject in named_in_tables() if subject.startswith("headrace.v1.")}
    for pattern in (filled(each, {}) for each in promised(kind)[1] if each.endswith(".*")):
        longer = {each for each in every_subject if covers(f"{pattern.removesuffix('*')}>", each)}
        assert {each for each in longer if not covers(pattern, each)} == set()


def test_every_kind_of_credential_is_tried(holders: Mapping[str, Holder]) -> None:
    kinds = {"person" if kind is PartyKind.PERSON else kind.value for kind in PartyKind}
    assert {holder.kind for holder in holders.values()} == kinds | {"program", "reader", "system", "watcher"}


NAMES: Final = (
    *("anna", "ben", "eve", "client", "n1", "n2", "joined", "token", "program", "reader", *SERVICES.split()),
    *("provisioner", "operator", "admission of the system"),
)


@pytest.mark.parametrize("name", NAMES)
def test_the_server_allows_what_is_promised_and_nothing_else(
    cluster: Cluster, holders: Mapping[str, Holder], name: str
) -> None:
    assert set(NAMES) == holders.keys()
    holder = holders[name]
    publish, subscribe = ([filled(each, holder.names) for each in patterns] for patterns in promised(holder.kind))
    tried = sorted(variants(holder))
    literal = [subject for subject in tried if not {"*", ">"} & set(subject.split("."))]
    allowed = {
        "publish": {subject for subject in literal if any(covers(pattern, subject) for pattern in publish)},
        "subscribe": {subject for subject in tried if any(covers(pattern, subject) for pattern in subscribe)},
    }
    with BareConnection(cluster.port, cluster.ca_file, holder.credential) as connection:
        found = {
            "publish": set(literal) - connection.refused_publishes(literal),
            "subscribe": set(tried) - connection.refused_subscriptions(tried),
            "subscribe in a queue": set(tried) - connection.refused_subscriptions(tried, queue="q"),
            "subscribe in the queue of inboxes": set(tried)
            - connection.refused_subscriptions(tried, queue=INBOX_QUEUE),
        }

    in_queue = {subject for subject in tried if any(covers(each, subject) for each in of_inboxes(holder))}
    expected = {
        **allowed,
        "subscribe in a queue": allowed["subscribe"],
        "subscribe in the queue of inboxes": allowed["subscribe"] | in_queue,
    }
    assert [(what, sorted(found[what] - expected[what])) for what in found if found[what] - expected[what]] == []
    assert [(what, sorted(expected[what] - found[what])) for what in found if expected[what] - found[what]] == []
    assert len(literal) > 1_000
    assert allowed["subscribe"]


def test_whoever_has_no_credential_is_not_let_in(cluster: Cluster) -> None:
    with pytest.raises(NotLetIn, match="Authorization Violation"):
        BareConnection(cluster.port, cluster.ca_file, None)
