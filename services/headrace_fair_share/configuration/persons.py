"""The people who make requests. The groups of each person come from admission, which knows them."""

from __future__ import annotations

from typing import Final, TypeVar

from headrace.bus import Bus, BusError
from headrace.ids import GroupName, is_user_name
from headrace.obs.logging import logger
from headrace.pools import Person, person_of
from headrace.runtime.settings import CommonSettings
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, encode
from headrace.wire.groups import AskGroups, GroupsOfPerson
from headrace.wire.refusals import NotAllowed, NotReady, decode_answer

#: Seconds that a request waits for admission's answer. It is longer than the second that admission itself waits for the name service of its
#: host.
_WAIT_S: Final = 1.5

A = TypeVar("A")


def sure(answer: A, person: Person) -> A | NotReady:
    """Return the answer, or `NotReady` if it is a refusal for a missing right and the person's groups are not known.

    Such a refusal may be wrong, because one of the unknown groups may give the right.
    """
    if isinstance(answer, NotAllowed) and not person.groups_known:
        return NotReady(f"the groups of {person.name} are not known, because admission does not answer")
    return answer


class Persons:
    """Returns people with their rights and groups."""

    def __init__(self, bus: Bus, settings: CommonSettings) -> None:
        self._bus = bus
        self._settings = settings

    async def __call__(self, user: str) -> Person:
        """Return the person with the name `user`.

        Admission is asked for the person's groups, except if the person is an administrator by name, or if members of groups cannot have
        this name.

        If admission does not answer, the person is returned without groups. An access list then counts for the person only if it contains
        the person's name. See `sure`.
        """
        known = self._settings.person(user)
        if known.administrator or not is_user_name(user):
            return known
        groups = await self._groups(user)
        if groups is None:
            return Person(user, administrators=known.administrators, groups_known=False)
        return person_of(user, known.administrators, groups)

    async def _groups(self, user: str) -> tuple[GroupName, ...] | None:
        try:
            answer = await self._bus.request(subjects.GROUPS_OF, encode(AskGroups(user)), timeout_s=_WAIT_S)
            told = decode_answer(answer, GroupsOfPerson)
        except (BusError, BadMessage) as error:
            logger().info("groups of a person not known", user=user, error=str(error))
            return None
        return tuple(each.name for each in told.groups) if isinstance(told, GroupsOfPerson) else None
