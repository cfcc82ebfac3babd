"""Looks at how much the connections to the server send, and holds out the parties that send too much.

NATS has no bound on what a party sends. Even if no service reads the messages of a flood, the flood takes processor time of the
server: a flood over 40 connections delayed each hop of another person's request by 0.2 s. So admission asks the servers every second
how much they received in all. Only if that is more than one party may send does it ask for the counts of single connections.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, TypeVar

import anyio
import msgspec

from headrace.access.account_authority import OPERATOR_INBOX, AccountAuthority, connections_subject, received_subject
from headrace.bus import Bus, BusClosed, PermissionRefused, connect
from headrace.errors import HeadraceError
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.runtime.engine import Figure, counter
from headrace_admission.floods.flood_book import Bounds, Connection, Flood, FloodBook, Received
from headrace_admission.nodes.revocation import Revocations
from headrace_admission.settings import AdmissionSettings

_LOOK_S: Final = 1.0
#: After this many looks, the servers that answer are counted again. If there are several servers, a look waits a fixed time
#: (`_ANSWERS_S`) for their answers. If there is only one server, a look ends with its answer, and may wait longer for it (`_ONE_ANSWER_S`).
_COUNT_AFTER: Final = 60
_ANSWERS_S: Final = 1.0
_ONE_ANSWER_S: Final = 10.0
_CONNECT_S: Final = 10.0
#: Upper bound of the connections in one answer, and number of received bytes after which a look asks for no further connections. The
#: entry of a connection has about 3 kB; a client with a long name can make its entry 32 kB long.
_MOST_LISTED: Final = 512
_MOST_BYTES: Final = 32 * 1024 * 1024
#: NATS' number for open and closed connections. A server lists its last 10,000 closed connections.
_OPEN_AND_CLOSED: Final = 2
_OLD_AUTHORITY: Final = (
    "floods are not ended, because the keys of admission are from an earlier release: repeat `headrace cluster init` with its "
    "options, and restart admission"
)
_T = TypeVar("_T")


class _Account(msgspec.Struct, frozen=True):
    received: Received


class _Accounts(msgspec.Struct, frozen=True):
    server_id: str
    account_statz: list[_Account]


class _Statistics(msgspec.Struct, frozen=True):
    data: _Accounts


class _Connections(msgspec.Struct, frozen=True):
    server_id: str
    connections: list[Connection] | None = None


class _Listed(msgspec.Struct, frozen=True):
    data: _Connections


class FloodWatch:
    """Looks for floods and ends them while this process is the leader."""

    def __init__(
        self, settings: AdmissionSettings, clock: Clock, authority: AccountAuthority, revocations: Revocations
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._authority = authority
        self._revocations = revocations
        self._book = FloodBook(Bounds(settings.most_sent_bytes_per_s, settings.most_sent_messages_per_s))
        #: Number of floods that were ended.
        self.ended = 0
        #: Number of looks since the present connection to the server was opened.
        self.looks = 0
        #: Number of servers that answered the last time that the servers were counted.
        self._servers = 0
        self._why_blind = ""

    async def keep(self) -> None:
        """Look for floods until cancelled.

        If the keys of admission do not permit this, return: only a restarted process reads other keys.
        """
        while True:
            try:
                async with connect(
                    self._settings.server_urls,
                    name="headrace-admission-floods",
                    credential=self._authority.system,
                    inbox_prefix=OPERATOR_INBOX,
                    connect_timeout_s=_CONNECT_S,
                    ca_file=self._settings.ca_file,
                ) as system:
                    await self._keep_looking(system)
            except PermissionRefused:
                self._why_blind = _OLD_AUTHORITY
                logger().warning(_OLD_AUTHORITY)
                return
            except (HeadraceError, OSError) as error:
                logger().info("no connection to look for floods", error=str(error))
            await anyio.sleep(_LOOK_S)

    def trouble(self) -> str:
        """Return why this process cannot end floods, or an empty text if it can."""
        return self._why_blind

    async def _keep_looking(self, system: Bus) -> None:
        self.looks = 0
        while True:
            began_s = self._clock.steady_s()
            try:
                await self._look(system)
            except (PermissionRefused, BusClosed):
                raise
            except HeadraceError as error:
                logger().info("look for floods failed", error=str(error))
            await anyio.sleep(_LOOK_S - min(_LOOK_S, self._clock.steady_s() - began_s))

    async def _look(self, system: Bus) -> None:
        account, counts = self._authority.account, self.looks % _COUNT_AFTER == 0
        statistics = _read(await self._asked(system, received_subject(account), {}, waits=counts), _Statistics)
        self.looks += 1
        self._servers = len(statistics) if counts else self._servers
        received = {each.data.server_id: one.received for each in statistics for one in each.data.account_statz}
        self._book.on_received(received, self._clock.steady_s())
        if not self._book.is_watching(self._clock.steady_s()):
            return
        listed, is_whole = await self._connections(system)
        signers, now_s = self._revocations.signers, self._clock.steady_s()
        for flood in self._book.look(listed, signers, now_s, is_whole=is_whole):
            await self._end(system, flood)

    async def _connections(self, system: Bus) -> tuple[dict[str, list[Connection]], bool]:
        """Return the connections of each server, and True; if there are very many, those that sent last, and False."""
        listed: dict[str, list[Connection]] = defaultdict(list)
        offset, read_bytes = 0, 0
        while read_bytes < _MOST_BYTES:
            request = {"auth": True, "sort": "last", "limit": _MOST_LISTED, "offset": offset, "state": _OPEN_AND_CLOSED}
            answers = await self._asked(system, connections_subject(self._authority.account), request)
            pages = [each.data for each in _read(answers, _Listed)]
            for page in pages:
                listed[page.server_id] += page.connections or []
            if all(len(page.connections or []) < _MOST_LISTED for page in pages):
                return listed, True
            offset += _MOST_LISTED
            read_bytes += sum(map(len, answers))
        return listed, False

    async def _end(self, system: Bus, flood: Flood) -> None:
        rates = f"{flood.bytes_per_s // 10**6} MB and {flood.messages_per_s} messages a second"
        why = f"it sent {rates} over {flood.connections} connections"
        held_out = [await self._revocations.hold_out(system, key, flood.party, why) for key in flood.keys]
        pauses_s = [each.pause_s for each in held_out if each is not None]
        if pauses_s:
            self.ended += 1
            logger().warning("flood ended", party=flood.party, keys=flood.keys, why=why, held_out_s=max(pauses_s))

    async def _asked(
        self, system: Bus, subject: str, request: dict[str, object], *, waits: bool = False
    ) -> list[bytes]:
        """Return the answers of all servers."""
        data = msgspec.json.encode(request)
        if self._servers == 1 and not waits:
            return [await system.request(subject, data, timeout_s=_ONE_ANSWER_S)]
        return await system.gather(subject, data, wait_s=_ANSWERS_S)


def floods_ended(watch: FloodWatch | None) -> Figure:
    """Return the metric of the floods that were ended; it is 0 without a watch."""
    says = "Persons, nodes and hosts that were held out for a while because they sent more than they may."
    return counter("floods_ended", "floods", 0 if watch is None else watch.ended, says)


def _read(answers: list[bytes], kind: type[_T]) -> list[_T]:
    """Decode answers. An answer that cannot be decoded is left out."""
    found = []
    for answer in answers:
        try:
            found.append(msgspec.json.decode(answer, type=kind))
        except msgspec.DecodeError as error:
            logger().info("an answer of the server cannot be read", error=str(error))
    return found
