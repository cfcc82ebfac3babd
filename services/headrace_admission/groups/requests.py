"""The requests about groups: from people, and from services that must know which groups a person is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import anyio
import msgspec

from headrace.bus import BusError, Entry, Mirror, NoResponders, NotConnected, WrongRevision
from headrace.ids import GroupName
from headrace.obs.logging import logger
from headrace.pools import Person
from headrace.runtime.concurrent_calls import together
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.service import Runtime
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE
from headrace.wire.groups import (
    AskGroups,
    ChangeGroup,
    GetGroup,
    Group,
    GroupChange,
    GroupsOfPerson,
    ListGroups,
)
from headrace.wire.refusals import SLOW_BUS, NotReady, NotRecorded
from headrace_admission.decisions.group_changes import change, find, listed
from headrace_admission.groups.host_groups import HostGroups
from headrace_admission.groups.login_groups import LoginGroups
from headrace_admission.nodes.keys_file import read_authority
from headrace_admission.settings import AdmissionSettings
from headrace_admission.state.groups import GroupBook

_CHANGE_S: Final = 3.0
#: Seconds between two checks whether a written group has arrived in the mirror, after the bucket was lost.
_LOOK_S: Final = 0.05
_NOT_WRITTEN: Final = "the bucket of groups was not written"


class GroupRequests:
    """Handlers of the requests about groups, for one term of admission."""

    _bucket: CopiedBucket
    _mirror: Mirror

    def __init__(self, runtime: Runtime[AdmissionSettings], book: GroupBook, person: Callable[[str], Person]) -> None:
        self._runtime = runtime
        self._book = book
        self._person = person
        #: Held during a change of a group, because each change is checked against all groups.
        self._turn = anyio.Lock()
        of_host = runtime.settings.groups_of_host
        self._host = HostGroups(runtime.clock, runtime.tasks, book.take_of_host) if of_host else None
        self._logins: LoginGroups | None = None

    async def open(self) -> None:
        """Open the bucket and read all groups. Raises `BusError`, `BadInput`."""
        self._open_logins()
        self._bucket = await CopiedBucket.open(self._runtime.bus, subjects.GROUPS_BUCKET, kind=Group)
        await self._bucket.write_lost_again()
        self._runtime.tasks.start_soon(self._bucket.keep)
        read = anyio.Event()
        self._runtime.tasks.start_soon(self._follow, read)
        await read.wait()

    async def serve(self) -> None:
        """Serve the requests. Raises `BusError`."""
        serve, user = self._runtime.endpoints.serve, CallerKind.USER
        await together(
            partial(serve, subjects.user("*", "group.change"), ChangeGroup, user, self._on_change),
            partial(serve, subjects.user("*", "group.get"), GetGroup, user, self._on_get),
            partial(serve, subjects.user("*", "group.list"), ListGroups, user, self._on_list),
            partial(serve, subjects.GROUPS_OF, AskGroups, CallerKind.SERVICE, self._on_ask),
        )

    async def know(self, user: str) -> None:
        """Look up the person's groups on this host and in the credentials of connections, as set, unless the last lookup is recent."""
        if self._host is not None:
            await self._host.know(user)
        if self._logins is not None:
            await self._logins.know(user)

    async def person(self, user: str) -> Person:
        """Return a user with groups and rights, as they are known now."""
        await self.know(user)
        return self._person(user)

    def _open_logins(self) -> None:
        runtime = self._runtime
        authority = read_authority(runtime.settings) if runtime.settings.groups_of_login else None
        if authority is None:
            return
        take = self._book.take_of_login
        self._logins = LoginGroups(runtime.settings, runtime.clock, runtime.tasks, authority, take)
        runtime.presence.watches(self._logins.trouble)
        runtime.tasks.start_soon(self._logins.keep)

    async def _follow(self, read: anyio.Event) -> None:
        async with self._bucket.mirror(self._on_entries) as self._mirror:
            self._on_entries(self._mirror.entries, frozenset(self._mirror.entries))
            read.set()
            await anyio.sleep_forever()

    def _on_entries(self, entries: Mapping[str, Entry], changed: frozenset[str]) -> None:
        for key in changed:
            entry = entries.get(key)
            try:
                group = None if entry is None else msgspec.json.decode(entry.value, type=Group)
            except UNREADABLE as error:
                # The last known members stay in force until the value is restored from its copy.
                self._runtime.endpoints.report_malformed(f"bucket {subjects.GROUPS_BUCKET}", key, str(error))
                continue
            self._book.take(GroupName(key), group)

    async def _on_list(self, _request: ListGroups, _caller: Caller) -> msgspec.Struct:
        return listed(self._book)

    async def _on_get(self, request: GetGroup, _caller: Caller) -> msgspec.Struct:
        return find(self._book, request.name)

    async def _on_ask(self, request: AskGroups, _caller: Caller) -> msgspec.Struct:
        await self.know(request.user)
        return GroupsOfPerson(list(self._book.of(request.user)))

    async def _on_change(self, request: ChangeGroup, caller: Caller) -> msgspec.Struct:
        await self.know(caller.name)
        try:
            with anyio.fail_after(_CHANGE_S):
                async with self._turn:
                    return await self._changed(request, caller)
        except TimeoutError:
            return NotRecorded(int(_CHANGE_S * 1000), SLOW_BUS)
        except (NotConnected, NoResponders) as error:
            return NotReady(f"{_NOT_WRITTEN}: {error}")
        except BusError as error:
            # The change may have been written despite the error.
            return NotRecorded(0, f"{_NOT_WRITTEN}: {error}")

    async def _changed(self, request: ChangeGroup, caller: Caller) -> msgspec.Struct:
        """Decide and write a change. When this returns, the change is in force. Raises `BusError`."""
        while True:
            known = self._book.by_name.get(GroupName(request.name))
            answer = change(self._book, request, self._person(caller.name), self._runtime.clock.now().wall_ms)
            if not isinstance(answer, Group) or (answer == known and request.change is not GroupChange.DELETE):
                return answer
            try:
                value = await self._write(request, answer)
            except WrongRevision:
                await self._catch_up()
                continue
            await self._until_in_force(answer.name, value)
            logger().info(
                "group changed",
                group=answer.name,
                change=request.change,
                members=request.members[:20],
                user=caller.name,
            )
            return answer

    async def _write(self, request: ChangeGroup, group: Group) -> bytes | None:
        """Write a group, and return its value; None if it was deleted. Raises `BusError`."""
        if request.change is GroupChange.DELETE:
            await self._bucket.delete(group.name)
            return None
        entry, value = self._mirror.entries.get(group.name), msgspec.json.encode(group)
        await self._bucket.update(group.name, value, 0 if entry is None else entry.revision)
        return value

    async def _until_in_force(self, name: str, value: bytes | None) -> None:
        """Wait until the mirror has the written value, so that decisions use it.

        If the bucket was lost, the mirror is filled anew. Until that is done, the mirror has the old values.
        """
        while True:
            await self._catch_up()
            entry = self._mirror.entries.get(name)
            if (None if entry is None else entry.value) == value:
                return
            await anyio.sleep(_LOOK_S)

    async def _catch_up(self) -> None:
        while not await self._mirror.catch_up(timeout_s=_CHANGE_S):
            pass
