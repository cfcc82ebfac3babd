"""Endpoints for the person who asks, for groups of people, and for accounting."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Final

import msgspec

from headrace.client.consumption import Consumed
from headrace.consumption_sums import By, Line
from headrace.wire.groups import Group, GroupSize
from headrace.wire.rights import Rights
from headrace_web.api.context import Context
from headrace_web.api.endpoint import Endpoint
from headrace_web.api.pages import page_of
from headrace_web.api.pools import ListedNames

Members = Annotated[list[str], msgspec.Meta(max_length=1000)]


class RightsRequest(msgspec.Struct, frozen=True):
    """Which rights to return."""

    #: Pool to ask about: the answer has the rights on this pool, and says who has each right that the person lacks. Empty: the rights on
    #: all pools.
    pool: str = ""
    #: Tree of the pool; empty: the tree that this service was started for.
    tree: str = ""


class GroupPage(msgspec.Struct, frozen=True):
    """A page of groups, by name."""

    groups: list[GroupSize]
    #: `cursor` of the next page; null on the last page.
    next: str | None


class OneGroup(msgspec.Struct, frozen=True):
    """A group of people."""

    group: str


class GroupMembers(msgspec.Struct, frozen=True):
    """A group, and people."""

    group: str
    members: Members = []


class UsageRequest(msgspec.Struct, frozen=True):
    """A period, and the keys by which its consumption is grouped. Days begin at midnight UTC."""

    #: First day, such as `2026-11-01`.
    since: date
    #: First day after the period.
    until: date
    #: Some of `day`, `user`, `pool`, `tree` and `operation`. With `tree`, the consumption of a pool includes all pools below it.
    by: tuple[By, ...] = (By.USER,)
    #: Only this pool and the pools below it.
    pool: str = ""
    #: Only this user.
    user: str = ""
    #: Only this operation.
    operation: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 10_000
    #: `next` of the page before; empty for the first page.
    cursor: str = ""


class UsagePage(Consumed, frozen=True):
    """A page of the lines of a period, sorted by day, user, pool and operation."""

    #: `cursor` of the next page; null on the last page.
    next: str | None = None


async def get_rights(context: Context, request: RightsRequest) -> Rights:
    """Return the user name, the groups and the rights of the person for whom this service acts."""
    if not request.pool:
        return await context.client.persons.rights()
    tree = await context.tree(request.tree)
    pool = await context.client.pools.of(tree).at(request.pool)
    return await context.client.persons.rights_on(pool, tree)


async def list_groups(context: Context, request: ListedNames) -> GroupPage:
    """List the groups of people by name."""
    groups = (each for each in (await context.client.groups.list()).groups if each.name.startswith(request.name_prefix))
    return GroupPage(*page_of(groups, lambda each: each.name, limit=request.limit, cursor=request.cursor))


async def get_group(context: Context, request: OneGroup) -> Group:
    """Return a group with its members."""
    return await context.client.groups.get(request.group)


async def create_group(context: Context, request: GroupMembers) -> Group:
    """Make a group."""
    return await context.client.groups.create(request.group, request.members)


async def delete_group(context: Context, request: OneGroup) -> Group:
    """Delete a group, and return it as it was. Access lists that name the group stay as they are."""
    return await context.client.groups.delete(request.group)


async def add_members(context: Context, request: GroupMembers) -> Group:
    """Add people to a group."""
    return await context.client.groups.add(request.group, request.members)


async def remove_members(context: Context, request: GroupMembers) -> Group:
    """Remove people from a group. Either all of them are removed or none."""
    return await context.client.groups.remove(request.group, request.members)


async def get_usage(context: Context, request: UsageRequest) -> UsagePage:
    """Add up what finished runs were allotted, used and lost. The sums are computed anew for each page."""
    found = await context.client.consumption.summed(
        request.by,
        since=request.since,
        until=request.until,
        pool=request.pool,
        user=request.user,
        operation=request.operation,
    )
    lines, cursor = page_of(found.lines, _key_of_line, limit=request.limit, cursor=request.cursor)
    return UsagePage(**msgspec.structs.asdict(msgspec.structs.replace(found, lines=lines)), next=cursor)


def _key_of_line(line: Line) -> str:
    """Return the key by which lines are sorted: by day, user, pool and operation."""
    return msgspec.json.encode((line.day, line.user, line.pool, line.operation)).decode()


ENDPOINTS: Final = (
    Endpoint("GET", "/me", get_rights),
    Endpoint("GET", "/groups", list_groups),
    Endpoint("GET", "/groups/{group}", get_group),
    Endpoint("POST", "/groups/{group}", create_group, status=201),
    Endpoint("DELETE", "/groups/{group}", delete_group),
    Endpoint("POST", "/groups/{group}/add", add_members),
    Endpoint("POST", "/groups/{group}/remove", remove_members),
    Endpoint("GET", "/usage", get_usage),
)
