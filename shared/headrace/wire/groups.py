"""Groups of users: the requests of people about groups, and the requests of fair_share for the groups of a person."""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec

from headrace.ids import GroupName
from headrace.wire.version import Counter

#: Largest number of groups in the bucket.
MOST_GROUPS: Final = 1_000
#: Largest number of members of a group, which take 320 KB in a message.
MOST_MEMBERS: Final = 4_000
#: Largest number of groups in the bucket that a person may be a member of, and largest number of the host's groups that
#: count for a person.
MOST_GROUPS_OF_A_PERSON: Final = 200

#: Largest number of groups that a credential may name. A token of the HTTP API contains the credential, and must fit into an HTTP header.
MOST_GROUPS_OF_A_LOGIN: Final = 16

#: A name in a request. It is short, because the text of a refusal quotes it.
_Name = Annotated[str, msgspec.Meta(max_length=100)]


class GroupChange(enum.StrEnum):
    """Ways to change groups."""

    CREATE = "create"
    ADD = "add"
    REMOVE = "remove"
    DELETE = "delete"


class ChangeGroup(msgspec.Struct, frozen=True):
    """administrator → admission: create or delete a group, or add or remove members. Either the whole change is made or none of it."""

    name: _Name
    change: GroupChange
    members: Annotated[list[_Name], msgspec.Meta(max_length=MOST_MEMBERS)] = []


class Group(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A group as it is stored, and the answer to a change or to a request for it.

    The answer to the deletion of a group is the group as it was before.
    """

    name: GroupName
    #: Members by name, each with the time at which the member was added, in milliseconds of Unix time.
    members: dict[str, Counter] = {}
    created_by: str = ""
    created_at_ms: Counter = 0


class GetGroup(msgspec.Struct, frozen=True):
    """person → admission: ask for a group with its members."""

    name: _Name


class ListGroups(msgspec.Struct, frozen=True):
    """person → admission: ask for all groups."""


class GroupSize(msgspec.Struct, frozen=True):
    """A group in a list of groups."""

    name: GroupName
    members: int
    created_by: str
    created_at_ms: Counter


class GroupList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """All groups, by name."""

    groups: list[GroupSize]


class GroupSource(enum.StrEnum):
    """The place that records the members of a group."""

    HEADRACE = "headrace"
    #: The host of admission.
    HOST = "host"
    #: The credential with which the person is connected.
    LOGIN = "login"


class GroupOfPerson(msgspec.Struct, frozen=True):
    """A group that a person is in."""

    name: GroupName
    source: GroupSource


class AskGroups(msgspec.Struct, frozen=True):
    """fair_share → admission: ask which groups a person is in."""

    user: _Name


class GroupsOfPerson(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The groups of a person, the primary group first."""

    groups: list[GroupOfPerson]
