"""The groups in the credentials with which a person is connected, from the servers.

The operator writes the groups into the person's JWT. A server has verified the JWT of each of its connections, and closes a
connection when its JWT expires or is revoked. So admission asks the servers for the open connections of the person, and keeps
nothing: there is no claim that could be forged, or that would have to be forgotten.
"""

from __future__ import annotations

from typing import Final

import anyio
import anyio.abc
import msgspec

from headrace.access.account_authority import OPERATOR_INBOX, AccountAuthority, connections_subject
from headrace.bus import Bus, PermissionRefused, connect
from headrace.errors import BadInput, HeadraceError
from headrace.ids import GroupName
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.wire import subjects
from headrace_admission.groups.lookups import GroupLookups, Take
from headrace_admission.settings import AdmissionSettings

_CONNECT_S: Final = 2.0
_AGAIN_S: Final = 1.0
#: Seconds after which the servers that answer are counted again.
_COUNT_S: Final = 60.0
#: Seconds for which the answers of all servers are awaited when they are counted, and at each lookup if there are several.
_COUNTED_S: Final = 1.0
_ANSWERS_S: Final = 0.25
#: Seconds for which a result counts. It is as short as the time between lookups, so that a revocation has its effect within a second.
_LONGEST_S: Final = 1.0
#: Largest number of connections of a person that are looked at, at each server.
_MOST_CONNECTIONS: Final = 256


class _Connection(msgspec.Struct, frozen=True):
    #: JWT that the server has verified.
    jwt: str = ""


class _Connections(msgspec.Struct, frozen=True):
    connections: list[_Connection] | None = None


class _Listed(msgspec.Struct, frozen=True):
    data: _Connections


class LoginGroups(GroupLookups):
    """Looks up the groups in the credentials of people who are connected."""

    def __init__(
        self,
        settings: AdmissionSettings,
        clock: Clock,
        tasks: anyio.abc.TaskGroup,
        authority: AccountAuthority,
        take: Take,
    ) -> None:
        super().__init__(clock, tasks, take, self._of_connections, longest_s=_LONGEST_S, where="connections")
        self._settings = settings
        self._authority = authority
        #: Connection of the server's system account, while there is one.
        self._system: Bus | None = None
        self._connected = anyio.Event()
        self._servers = 0
        self._why_blind = "not connected to the servers yet"

    def trouble(self) -> str:
        """Return why the groups in credentials do not count; empty: they do."""
        return self._why_blind and f"groups in credentials do not count: {self._why_blind}"

    async def keep(self) -> None:
        """Keep a connection for the lookups, until cancelled."""
        while True:
            try:
                async with connect(
                    self._settings.server_urls,
                    name="headrace-admission-groups",
                    credential=self._authority.system,
                    inbox_prefix=OPERATOR_INBOX,
                    connect_timeout_s=_CONNECT_S,
                    ca_file=self._settings.ca_file,
                ) as system:
                    await self._keep_counting(system)
            except PermissionRefused:
                self._why_blind = "the keys of admission are from an earlier release: repeat `headrace cluster init`"
            except (HeadraceError, OSError) as error:
                self._why_blind = str(error)
            finally:
                self._system = None
                # Lookups wait for an event that is not set, whatever number of attempts it takes.
                if self._connected.is_set():
                    self._connected = anyio.Event()
            logger().warning(self.trouble())
            await anyio.sleep(_AGAIN_S)

    async def _keep_counting(self, system: Bus) -> None:
        self._servers, self._system, self._why_blind = 0, system, ""
        self._connected.set()
        while True:
            request = msgspec.json.encode({"limit": 1})
            answers = await system.gather(connections_subject(self._authority.account), request, wait_s=_COUNTED_S)
            self._servers = len(answers)
            await anyio.sleep(_COUNT_S)

    async def _of_connections(self, user: str) -> tuple[GroupName, ...]:
        # A former leader was asked a moment ago, so a new leader lets requests wait for its connection.
        while self._system is None:
            await self._connected.wait()
        subject = connections_subject(self._authority.account)
        # Every client of a person listens in the inboxes of the person.
        own = f"{subjects.inbox('user', user)}.>"
        request = msgspec.json.encode({"auth": True, "filter_subject": own, "limit": _MOST_CONNECTIONS})
        # Of several servers one may be the only one that has started.
        if self._servers == 1 and len(self._settings.server_urls) == 1:
            answers = [await self._system.request(subject, request, timeout_s=_COUNTED_S)]
        else:
            answers = await self._system.gather(subject, request, wait_s=_ANSWERS_S)
        groups: dict[GroupName, None] = {}
        for word in _verified_in(answers):
            groups.update(dict.fromkeys(self._groups_in(word, user)))
        return tuple(groups)

    def _groups_in(self, word: str, user: str) -> tuple[GroupName, ...]:
        try:
            return self._authority.groups_in(word, user)
        except BadInput:
            return ()


def _verified_in(answers: list[bytes]) -> list[str]:
    """Return the different JWTs of the connections, the same first each time. An answer that cannot be decoded is left out."""
    found: dict[str, None] = {}
    for answer in answers:
        try:
            listed = msgspec.json.decode(answer, type=_Listed)
        except msgspec.DecodeError as error:
            logger().info("an answer of the server cannot be read", error=str(error))
            continue
        found.update(dict.fromkeys(each.jwt for each in listed.data.connections or [] if each.jwt))
    return sorted(found)
