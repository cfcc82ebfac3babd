"""Finds the parties that send more than the bounds, from the counts of the servers.

Each party has a level in seconds: it rises by the time that a party needs to send the same within the bound, and falls by the time
that passes. A party floods while its level is higher than `BURST_S`. So a party may send at its bound all the time, and may send
short bursts above it. Pauses between bursts do not let a party send more than the bound on average.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from headrace.access.jwt import claims_of, is_signed_by
from headrace.access.nkeys import user_key
from headrace.access.routes import PartyKind
from headrace.errors import BadInput

#: Length of a permitted burst in seconds: a party may send at once what its bound allows in this time.
BURST_S: Final = 4.0
#: Seconds for which the single connections are still looked at after all connections together last sent more than one party may send.
WATCHED_S: Final = 30.0
_SHORTEST_S: Final = 0.1
#: If the connections of one JWT sent less than this part of the bound, they are left out, because reading thousands of JWTs would
#: take long.
_NEGLIGIBLE: Final = 0.01
_BOUNDED: Final = {kind.value for kind in (PartyKind.PERSON, PartyKind.NODE, PartyKind.HOST)}


class Bounds(msgspec.Struct, frozen=True):
    """The limits of what all connections of one party together may send in a second."""

    bytes_per_s: int
    messages_per_s: int


class Received(msgspec.Struct, frozen=True):
    """The amounts that a server has received."""

    msgs: int = 0
    bytes: int = 0


class Connection(msgspec.Struct, frozen=True):
    """A connection in the list of a server, open or closed."""

    #: Number of the connection at its server. Later connections have higher numbers.
    cid: int
    in_msgs: int = 0
    in_bytes: int = 0
    #: JWT of the newest `CONNECT` of the client. The server has verified the JWT of an open connection. But a client can send a second
    #: `CONNECT`: the server then closes the connection, and lists it with the JWT in it, which anybody can have made up.
    jwt: str = ""


#: The id of a server, and the number of a connection there.
_Place = tuple[str, int]


class Flood(msgspec.Struct, frozen=True):
    """A party that sends too much: the amounts that it has sent since the last look."""

    #: Kind and name of the party, such as `user anna`.
    party: str
    #: The keys with which the party sent: its own key, and keys of its tokens.
    keys: list[str]
    bytes_per_s: int
    messages_per_s: int
    connections: int


class FloodBook:
    """The counts of the servers at the last look, and the level of each party."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._received: Mapping[str, Received] = {}
        self._received_s = 0.0
        #: Messages and bytes that the servers received between the last two calls of `on_received`.
        self._more = Received()
        self._watched_until_s = 0.0
        self._looked_s = 0.0
        #: The connections at the last look, each under the id of its server and its number.
        self._counted: dict[_Place, Connection] = {}
        #: Messages and bytes that each connection in `_counted` sent between the last two looks.
        self._sent_lately: dict[_Place, Connection] = {}
        #: Connections that the last list lacked although the list before it had them.
        self._missing: dict[_Place, Connection] = {}
        #: Messages and bytes that were received between the last two looks and that no listed connection accounts for.
        self._unattributed = Received()
        #: Highest number of a connection that each server has listed.
        self._last_cids: dict[str, int] = {}
        self._levels_s: dict[str, float] = {}

    def is_watching(self, now_s: float) -> bool:
        """Return True if the single connections must be looked at, because some party may send too much."""
        return now_s <= self._watched_until_s

    def on_received(self, received: Mapping[str, Received], now_s: float) -> None:
        """Take what each server has received until now. It decides whether the connections must be looked at. Call it before each look."""
        passed_s, self._received_s = max(_SHORTEST_S, now_s - self._received_s), now_s
        more = [(count, self._received[server]) for server, count in received.items() if server in self._received]
        self._received = received
        self._more = Received(
            sum(now.msgs - before.msgs for now, before in more), sum(now.bytes - before.bytes for now, before in more)
        )
        self._watch_if_much(self._allowed_s(self._more.msgs, self._more.bytes), passed_s, now_s)
        if not self.is_watching(now_s):
            self._counted, self._sent_lately, self._missing, self._last_cids, self._levels_s = {}, {}, {}, {}, {}
            self._unattributed = Received()

    def look(
        self,
        lists: Mapping[str, Sequence[Connection]],
        signers: frozenset[str],
        now_s: float,
        *,
        is_whole: bool = True,
    ) -> list[Flood]:
        """Take what each server has counted for each connection until now. Return the floods.

        `is_whole` says that the lists have all connections.
        Only JWTs that one of the keys `signers` signed say whose a connection is. A client can hide what a connection sent: if its last
        `CONNECT` has another JWT, the server lists the closed connection with that JWT, or not at all. Clients of Headrace never do this.
        So what is hidden counts for the parties whose connections ended in this way, in proportion to what they sent before.
        """
        passed_s, self._looked_s = max(_SHORTEST_S, now_s - self._looked_s), now_s
        listed = {(server, each.cid): each for server, own in lists.items() for each in own}
        hiding = self._hiding(lists.keys() if is_whole else (), listed)
        counted = {place: self._with_first_jwt(place, each) for place, each in listed.items()}
        lately = {place: more for place, each in counted.items() if (more := self._since_last_look(place, each))}
        sent: dict[str, list[Connection]] = defaultdict(list)
        for more in lately.values():
            sent[more.jwt].append(more)
        self._watch_if_much(self._allowed_s_for(list(lately.values())), passed_s, now_s)
        self._counted, self._sent_lately = counted, lately
        for server, number in counted:
            self._last_cids[server] = max(number, self._last_cids.get(server, 0))
        unowned = self._unowned(sent, signers, passed_s)
        seen = [each for jwt, own in sent.items() if jwt not in unowned for each in own]
        for jwt, hidden in self._hidden(seen, hiding).items():
            sent[jwt].append(hidden)
        floods = _floods({jwt: own for jwt, own in sent.items() if self._matters(own, passed_s)}, signers, passed_s)
        self._levels_s = {
            party: level_s
            for party in self._levels_s.keys() | floods.keys()
            if (level_s := self._level_s(party, floods.get(party), passed_s)) > 0
        }
        return [flood for party, flood in floods.items() if self._levels_s.get(party, 0) > BURST_S]

    def _hiding(self, servers: Collection[str], listed: Mapping[_Place, Connection]) -> dict[str, float]:
        """Return the JWTs of connections that hide what they send, with the seconds that the bound allows for what they sent before.

        A connection that is not listed may only have been skipped, since the order of a list changes between its pages. So it counts if it
        is not listed by the next look either.
        """
        changed = [
            sent for place, sent in self._sent_lately.items() if place in listed and listed[place].jwt != sent.jwt
        ]
        gone = [sent for place, sent in self._missing.items() if place[0] in servers and place not in listed]
        self._missing = {place: sent for place, sent in self._sent_lately.items() if place not in listed}
        found: dict[str, float] = defaultdict(float)
        for sent in (*changed, *gone):
            found[sent.jwt] += self._allowed_s_for([sent])
        return found

    def _unowned(self, sent: Mapping[str, Sequence[Connection]], signers: frozenset[str], passed_s: float) -> set[str]:
        """Return the JWTs that nobody signed. JWTs that sent little are not checked, unless together they sent much."""
        small = {jwt for jwt, own in sent.items() if not self._matters(own, passed_s)}
        if self._allowed_s_for([each for jwt in small for each in sent[jwt]]) > passed_s:
            small = set()
        return {jwt for jwt in sent if jwt not in small and not _is_signed(jwt, signers)}

    def _hidden(self, seen: Sequence[Connection], hiding: Mapping[str, float]) -> dict[str, Connection]:
        """Return what the servers received since the look before the last and nobody is `seen` to have sent, shared among the JWTs in
        `hiding`.
        """
        now = Received(
            max(0, self._more.msgs - sum(each.in_msgs for each in seen)),
            max(0, self._more.bytes - sum(each.in_bytes for each in seen)),
        )
        before, total_s = self._unattributed, sum(hiding.values())
        if not total_s:
            self._unattributed = now
            return {}
        self._unattributed = Received()
        messages, hidden_bytes = before.msgs + now.msgs, before.bytes + now.bytes
        return {
            jwt: Connection(0, int(messages * own_s / total_s), int(hidden_bytes * own_s / total_s), jwt)
            for jwt, own_s in hiding.items()
        }

    def _with_first_jwt(self, place: _Place, connection: Connection) -> Connection:
        """Return the connection with the JWT of the look that saw it first. A connection that ends cannot change whose it was."""
        before = self._counted.get(place)
        return connection if before is None else msgspec.structs.replace(connection, jwt=before.jwt)

    def _since_last_look(self, place: _Place, connection: Connection) -> Connection | None:
        """Return the connection with what it sent since the last look. None if that is not known."""
        server, before = place[0], self._counted.get(place)
        if before is None:
            # The last list did not have this connection. It is new only if its number is higher than all numbers listed so far;
            # otherwise it was left out of the last list, and its counts at that time are not known.
            is_new = server in self._last_cids and connection.cid > self._last_cids[server]
            return connection if is_new else None
        in_msgs, in_bytes = connection.in_msgs - before.in_msgs, connection.in_bytes - before.in_bytes
        return msgspec.structs.replace(connection, in_msgs=in_msgs, in_bytes=in_bytes)

    def _matters(self, sent: Sequence[Connection], passed_s: float) -> bool:
        return self._allowed_s_for(sent) > _NEGLIGIBLE * passed_s

    def _watch_if_much(self, allowed_s: float, passed_s: float, now_s: float) -> None:
        if allowed_s > passed_s:
            self._watched_until_s = now_s + WATCHED_S

    def _level_s(self, party: str, flood: Flood | None, passed_s: float) -> float:
        more_s = 0.0 if flood is None else self._allowed_s(flood.messages_per_s, flood.bytes_per_s) * passed_s
        # Without the upper bound, one long flood would raise the level so far that the party would count as flooding for minutes after it.
        return min(2 * BURST_S, self._levels_s.get(party, 0.0) + more_s - passed_s)

    def _allowed_s_for(self, sent: Sequence[Connection]) -> float:
        return self._allowed_s(sum(each.in_msgs for each in sent), sum(each.in_bytes for each in sent))

    def _allowed_s(self, messages: float, sent_bytes: float) -> float:
        """Return the number of seconds in which a party may send this much."""
        return max(messages / self._bounds.messages_per_s, sent_bytes / self._bounds.bytes_per_s)


def _floods(sent: Mapping[str, Sequence[Connection]], signers: frozenset[str], passed_s: float) -> dict[str, Flood]:
    """Return what each bounded party sent, by its kind and name. `sent` has the connections of each JWT."""
    connections: dict[str, list[Connection]] = defaultdict(list)
    keys: dict[str, list[str]] = defaultdict(list)
    for jwt, own in sent.items():
        if (named := bounded_party(jwt, signers)) is not None:
            key, party = named
            connections[party] += own
            if key not in keys[party]:
                keys[party].append(key)
    return {
        party: Flood(
            party,
            keys[party],
            int(sum(each.in_bytes for each in own) / passed_s),
            int(sum(each.in_msgs for each in own) / passed_s),
            len(own),
        )
        for party, own in connections.items()
    }


def bounded_party(jwt: str, signers: frozenset[str]) -> tuple[str, str] | None:
    """Return the key of a person, a node or a host, and its kind and name, by its JWT.

    None for services: they have no bound. None also if none of the keys `signers` signed the JWT.
    """
    try:
        claims = claims_of(jwt)
        if not _is_signed(jwt, signers):
            return None
        inboxes = [str(subject).split(".") for subject in claims["nats"]["sub"]["allow"]]
        kind, name = next(parts[1:3] for parts in inboxes if parts[0] == "_INBOX" and parts[1] in _BOUNDED)
        return user_key(str(claims["sub"])), f"{kind} {name}"
    except (BadInput, KeyError, TypeError, ValueError, IndexError, StopIteration):
        return None


@lru_cache(maxsize=2048)
def _is_signed(jwt: str, signers: frozenset[str]) -> bool:
    """True if one of these keys signed a JWT."""
    try:
        return any(is_signed_by(jwt, signer) for signer in signers)
    except BadInput:
        return False
