"""Changes of groups: who may make them, and what a group is afterwards. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from headrace.errors import BadInput
from headrace.ids import GroupName, group_name, user_name
from headrace.pools import Person
from headrace.suggestions import near
from headrace.wire.groups import (
    MOST_GROUPS,
    MOST_GROUPS_OF_A_PERSON,
    MOST_MEMBERS,
    ChangeGroup,
    Group,
    GroupChange,
    GroupList,
    GroupSize,
)
from headrace.wire.refusals import BadRequest, Exists, NotFound, Refusal, WrongState, not_allowed
from headrace_admission.state.groups import GroupBook


def change(book: GroupBook, request: ChangeGroup, by: Person, now_ms: int) -> Group | Refusal:
    """Return a group as it is after the change, or the refusal. A deleted group is returned as it was.

    Only administrators of the whole installation change groups: a group may be named in the lists of any pool.
    """
    if not by.administrator:
        return not_allowed(by, f"change group {request.name}")
    creates = request.change is GroupChange.CREATE
    known = _new(book, request.name, by, now_ms) if creates else find(book, request.name)
    if not isinstance(known, Group) or request.change is GroupChange.DELETE:
        return known
    if request.change is GroupChange.REMOVE:
        return _without(known, request.members)
    return _with(book, known, request.members, now_ms)


def find(book: GroupBook, name: str) -> Group | NotFound:
    """Return a group, or the refusal with similar names."""
    return book.by_name.get(GroupName(name)) or NotFound("group", name, near=near(name, book.by_name))


def listed(book: GroupBook) -> GroupList:
    """Return all groups, by name."""
    groups = sorted(book.by_name.values(), key=lambda group: group.name)
    return GroupList([GroupSize(each.name, len(each.members), each.created_by, each.created_at_ms) for each in groups])


def _new(book: GroupBook, name: str, by: Person, now_ms: int) -> Group | Refusal:
    try:
        made = group_name(name)
    except BadInput as error:
        return BadRequest.of(error.at("group"))
    if made in book.by_name:
        return Exists("group", name)
    if len(book.by_name) >= MOST_GROUPS:
        return WrongState("the list", "of groups", f"full: it has {MOST_GROUPS} groups", f"fewer than {MOST_GROUPS}")
    return Group(made, {}, by.name, now_ms)


def _with(book: GroupBook, group: Group, members: list[str], now_ms: int) -> Group | Refusal:
    added = [name for name in members if name not in group.members]
    for name in added:
        try:
            user_name(name)
        except BadInput as error:
            return BadRequest("member", name, f"the name of a user, {error.expected}")
        if book.count_of(name) >= MOST_GROUPS_OF_A_PERSON:
            return BadRequest.because(
                "member",
                f"{name} is a member of {MOST_GROUPS_OF_A_PERSON} groups already, the most that are allowed for a person",
            )
    together = group.members | dict.fromkeys(added, now_ms)
    if len(together) > MOST_MEMBERS:
        return BadRequest.because(
            "members", f"the group would have {len(together)} members; at most {MOST_MEMBERS} are allowed"
        )
    return replace(group, members=together)


def _without(group: Group, members: list[str]) -> Group | NotFound:
    for name in members:
        if name not in group.members:
            return NotFound(f"member of group {group.name}", name, near=near(name, group.members))
    removed = set(members)
    return replace(group, members={name: at for name, at in group.members.items() if name not in removed})
