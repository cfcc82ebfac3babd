"""Which parties send too much: what the book says about counts that a test makes up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.access import jwt
from headrace.access.nkeys import KeyKind, SigningKey
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace_admission.floods.flood_book import (
    BURST_S,
    WATCHED_S,
    Bounds,
    Connection,
    Flood,
    FloodBook,
    Received,
    bounded_party,
)

BYTES, MESSAGES = 1_000_000, 1_000
ACCOUNT = SigningKey(KeyKind.ACCOUNT, bytes(32))
SIGNERS = frozenset({ACCOUNT.public})


def word(number: int, kind: PartyKind = PartyKind.PERSON, name: str = "anna", at_s: int = 0) -> str:
    """The JWT of the key with this number."""
    public = SigningKey(KeyKind.USER, bytes([number] * 32)).public
    return jwt.signed(ACCOUNT, jwt.user_claims(public, name, Party(kind=kind, name=name, tree="default")), at_s)


ANNA, BEN, NODE = word(1), word(2, name="ben"), word(3, PartyKind.NODE, "n1")


class Server:
    """A server that counts, and a book that looks at it each second."""

    def __init__(self) -> None:
        self.book = FloodBook(Bounds(BYTES, MESSAGES))
        self.now_s = 1_000.0
        self.open: dict[int, Connection] = {}
        self.closed: list[Connection] = []
        self.total = Received()
        self.looks = 0
        self._cid = 0
        self.passes()

    def connect(self, word: str) -> int:
        self._cid += 1
        self.open[self._cid] = Connection(self._cid, jwt=word)
        return self._cid

    def send(self, cid: int, sent_bytes: int, messages: int = 1) -> Self:
        known = self.open[cid]
        self.open[cid] = Connection(cid, known.in_msgs + messages, known.in_bytes + sent_bytes, known.jwt)
        self.total = Received(self.total.msgs + messages, self.total.bytes + sent_bytes)
        return self

    def close(self, cid: int) -> None:
        self.closed.append(self.open.pop(cid))

    def passes(self, seconds: float = 1.0) -> list[Flood]:
        self.now_s += seconds
        self.book.on_received({"s1": self.total}, self.now_s)
        if not self.book.is_watching(self.now_s):
            return []
        self.looks += 1
        return self.book.look({"s1": [*self.open.values(), *self.closed]}, SIGNERS, self.now_s)


def seconds_until_ended(server: Server, send: Callable[[int], object], most_s: int = 60) -> int | None:
    for second in range(most_s):
        send(second)
        if server.passes():
            return second + 1
    return None


@pytest.mark.parametrize("connections", [1, 40])
@pytest.mark.parametrize(("sent_bytes", "messages"), [(8 * BYTES, 1), (0, 8 * MESSAGES)], ids=["bytes", "messages"])
def test_a_flood_over_any_number_of_connections_is_found_within_seconds(
    connections: int, sent_bytes: int, messages: int
) -> None:
    server = Server()
    cids = [server.connect(ANNA) for _ in range(connections)]
    other = server.connect(BEN)

    found: list[Flood] = []
    for _ in range(3):
        for cid in cids:
            server.send(cid, sent_bytes // connections, max(1, messages // connections))
        server.send(other, BYTES // 2)
        found += server.passes()

    assert {(each.party, each.connections) for each in found} == {("user anna", connections)}
    assert found[0].keys == [jwt.claims_of(ANNA)["sub"]]
    assert found[0].bytes_per_s == sent_bytes
    assert found[0].messages_per_s == max(messages, connections)


def test_connections_that_were_closed_before_the_look_count() -> None:
    server = Server()

    def send(_: int) -> None:
        for _ in range(20):
            cid = server.connect(ANNA)
            server.send(cid, BYTES // 5)
            server.close(cid)

    assert seconds_until_ended(server, send) == 3


def test_a_key_with_two_words_is_one_party() -> None:
    server = Server()
    cids = [server.connect(word(1, at_s=at_s)) for at_s in range(4)]

    assert seconds_until_ended(server, lambda _: [server.send(cid, BYTES) for cid in cids]) is not None


def test_a_person_and_the_tokens_of_the_person_are_one_party() -> None:
    server = Server()
    words = [word(number) for number in range(1, 9)]
    cids = [server.connect(each) for each in words]

    found: list[Flood] = []
    for _ in range(20):
        for cid in cids:
            server.send(cid, BYTES // 4)
        found += server.passes()

    assert found
    assert {each.party for each in found} == {"user anna"}
    assert set(found[-1].keys) == {jwt.claims_of(each)["sub"] for each in words}


def test_a_flood_in_pulses_is_found() -> None:
    server = Server()
    cid = server.connect(ANNA)

    assert seconds_until_ended(server, lambda second: server.send(cid, 5 * BYTES if second % 2 else 0)) is not None


@given(st.lists(st.integers(0, BYTES), max_size=40), st.integers(0, int(BURST_S)), st.integers(0, 39))
def test_who_sends_within_the_bound_and_one_burst_is_never_held_out(sent: list[int], burst: int, at: int) -> None:
    """Whatever others send at the same time."""
    server = Server()
    anna, ben = server.connect(ANNA), server.connect(BEN)

    for second, sent_bytes in enumerate(sent):
        server.send(anna, sent_bytes + (burst * BYTES if second == at else 0))
        server.send(ben, 10 * BYTES)
        assert "user anna" not in {each.party for each in server.passes()}


def test_services_have_no_bound() -> None:
    server = Server()
    cids = [server.connect(word(4, kind)) for kind in PartyKind if kind.is_service]

    assert seconds_until_ended(server, lambda _: [server.send(cid, 10 * BYTES) for cid in cids]) is None


def test_connections_are_looked_at_only_while_the_server_receives_much() -> None:
    server = Server()
    cids = [server.connect(word(number)) for number in range(5, 9)]
    for _ in range(10):
        for cid in cids:
            server.send(cid, BYTES // 5)
        server.passes()
    assert server.looks == 0

    server.send(cids[0], 2 * BYTES)
    for _ in range(100):
        server.passes()
    assert server.looks == WATCHED_S + 1


def test_what_a_connection_sent_before_the_first_look_does_not_count() -> None:
    server = Server()
    old, silent = server.connect(ANNA), server.connect(BEN)
    server.send(old, 100 * BYTES)

    assert seconds_until_ended(server, lambda _: server.send(silent, BYTES // 2)) is None


def test_a_connection_that_was_left_out_of_one_list_does_not_count_from_its_beginning() -> None:
    book = FloodBook(Bounds(BYTES, MESSAGES))
    old, new = Connection(1, 9, 90 * BYTES, ANNA), Connection(2, 0, 0, BEN)
    book.on_received({"s1": Received()}, 1.0)
    book.on_received({"s1": Received(9, 90 * BYTES)}, 2.0)

    assert [
        book.look({"s1": listed}, SIGNERS, now_s) for now_s, listed in enumerate([[old, new], [new], [old, new]], 2)
    ] == [
        [],
        [],
        [],
    ]


def test_the_counts_of_all_servers_are_added() -> None:
    book = FloodBook(Bounds(BYTES, MESSAGES))
    found = []
    for second in range(5):
        sent = second * BYTES * 7 // 10
        servers = [f"s{number}" for number in range(4)]
        book.on_received({server: Received(second, sent) for server in servers}, second)
        found += book.look({server: [Connection(7, second, sent, NODE)] for server in servers}, SIGNERS, second)

    assert {each.party for each in found} == {"node n1"}
    assert {each.connections for each in found} == {4}


def test_a_server_that_starts_anew_is_no_flood() -> None:
    book = FloodBook(Bounds(BYTES, MESSAGES))
    for now_s, server in enumerate(("s1", "s2"), 1):
        book.on_received({server: Received(10, 100 * BYTES)}, now_s)
        assert not book.is_watching(now_s)


def forged(key: str) -> str:
    """A JWT that says to be Ben's, under this key. The account has not signed it."""
    own = SigningKey(KeyKind.ACCOUNT, bytes([1] * 32))
    claims = {**jwt.user_claims(key, "ben", Party(kind=PartyKind.PERSON, name="ben", tree="default"))}
    return jwt.signed(own, claims, 0)


def relisted(server: Server, cid: int, claimed: str) -> None:
    """The client sends a second CONNECT with a claimed JWT: the server closes the connection and lists it with that JWT."""
    server.close(cid)
    server.closed[-1] = msgspec.structs.replace(server.closed[-1], jwt=claimed)


@pytest.mark.parametrize("key", ["*", jwt.claims_of(BEN)["sub"]])
def test_nobody_is_held_out_for_a_jwt_that_nobody_signed(key: str) -> None:
    """With a revocation of the key `*` a server ends all connections of the account."""
    server = Server()

    def send(_: int) -> None:
        for _ in range(20):
            cid = server.connect(ANNA)
            server.send(cid, BYTES)
            relisted(server, cid, forged(key))

    assert seconds_until_ended(server, send) is None


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_connection_that_hides_what_it_sent_at_its_end_does_so_in_vain(is_listed: bool) -> None:
    """Each connection claims another JWT before it ends, and most begin and end between two looks."""
    server = Server()
    ben, seen = server.connect(BEN), server.connect(ANNA)
    found: list[Flood] = []

    for _ in range(20):
        server.send(seen, BYTES // 10).send(ben, BYTES // 2)
        found += server.passes()
        hidden = [seen, *(server.connect(ANNA) for _ in range(20))]
        for cid in hidden:
            server.send(cid, BYTES // 4)
            relisted(server, cid, forged("*"))
            if not is_listed:
                server.closed.pop()
        seen = server.connect(ANNA)
        found += server.passes()

    assert {each.party for each in found} == {"user anna"}
    assert {key for each in found for key in each.keys} == {jwt.claims_of(ANNA)["sub"]}


def test_a_list_that_skips_connections_makes_no_flood_of_them() -> None:
    """The order of a list changes while its pages are read. What is not attributed to anybody is not their doing."""
    server = Server()
    ben = server.connect(BEN)

    for second in range(40):
        server.send(ben, BYTES // 2)
        server.total = Received(server.total.msgs, server.total.bytes + 10 * BYTES)
        skipped = {ben: server.open.pop(ben)} if second % 2 else {}
        assert not server.passes()
        server.open.update(skipped)


NESTED = f"x.{jwt.base64_of(b'[' * 100_000)}.y"


@pytest.mark.parametrize("text", ["", "a.b.c", "x.e30.y", word(1).replace(".", "", 1), "x.bnVsbA.y", NESTED])
def test_a_word_that_cannot_be_read_is_of_nobody(text: str) -> None:
    assert bounded_party(text, SIGNERS) is None


@pytest.mark.parametrize("kind", list(PartyKind))
def test_a_party_is_known_by_its_word(kind: PartyKind) -> None:
    found = bounded_party(word(1, kind, "n1"), SIGNERS)

    is_bounded = kind in (PartyKind.PERSON, PartyKind.NODE, PartyKind.HOST)
    assert found == ((jwt.claims_of(word(1))["sub"], f"{kind.value} n1") if is_bounded else None)
