"""The commands `headrace group …`: groups of people, which stand in access lists of pools like the people themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cyclopts import App
from rich.table import Table

from headrace.client import Client
from headrace.counted import counted
from headrace.errors import BadInput
from headrace.wire.groups import Group
from headrace_cli.session import Common, Watching, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import facts_table, table
from headrace_cli.show.times import timestamp

app = App(
    name="group",
    help="""List, make and change groups of people.

    A group stands in an access list of a pool as group:NAME, as in `access/use='[ada; group:research]'`. Only administrators change
    groups. A change is in force when the command returns.
    """,
)


@app.command(name="list")
def list_(*, watching: Watching | None = None, common: Common | None = None) -> int:
    """List groups with their numbers of members.

    Examples of use:

        headrace group list
    """

    async def work(client: Client, screen: Screen) -> None:
        answer = await client.groups.list()
        made = table("group", "members", "made by", "at", right=("members",))
        for each in answer.groups:
            made.add_row(each.name, str(each.members), each.created_by, timestamp(each.created_at_ms / 1000))
        screen.show(answer, made)

    return talk(common, work, watching=watching)


@app.command
def get(name: str, /, *, common: Common | None = None) -> int:
    """Show a group with its members, in the order in which they were added.

    Examples of use:

        headrace group get research

    Parameters
    ----------
    name
        The group.
    """

    async def work(client: Client, screen: Screen) -> None:
        group = await client.groups.get(name)
        screen.show(group, _facts(group))
        if group.members and not screen.json:
            screen.print("", _members(group))

    return talk(common, work)


@app.command
def create(name: str, /, *users: str, common: Common | None = None) -> int:
    """Make a group, and add people to it.

    Examples of use:

        headrace group create research ada ben

    Parameters
    ----------
    name
        1 to 63 of a-z, A-Z, 0-9, '_' and '-', and single dots between them.
    users
        The first members.
    """
    return _change(common, lambda client: client.groups.create(name, users), "made")


@app.command
def add(name: str, /, *users: str, common: Common | None = None) -> int:
    """Add people to a group. People who are in it already stay in it.

    The first group that a person was added to is the person's primary group, unless the host on which admission runs names another.

    Examples of use:

        headrace group add research cleo dan

    Parameters
    ----------
    name
        The group.
    users
        The new members.
    """
    return _change(common, lambda client: client.groups.add(name, _some(users)), "changed")


@app.command
def remove(name: str, /, *users: str, common: Common | None = None) -> int:
    """Remove people from a group. Their operations stay as they are.

    Examples of use:

        headrace group remove research dan

    Parameters
    ----------
    name
        The group.
    users
        The members to remove. If one of them is not in the group, nothing is changed.
    """
    return _change(
        common,
        lambda client: client.groups.remove(name, _some(users, f"; `headrace group delete {name}` deletes the group")),
        "changed",
    )


@app.command
def delete(name: str, /, *, common: Common | None = None) -> int:
    """Delete a group. Access lists that name it stay as they are, and the name stands for nobody there.

    Examples of use:

        headrace group delete research

    Parameters
    ----------
    name
        The group.
    """
    return _change(common, lambda client: client.groups.delete(name), "deleted")


def _some(users: tuple[str, ...], more: str = "") -> tuple[str, ...]:
    if not users:
        raise BadInput.because("users", f"no user is named. Name at least one user{more}")
    return users


def _change(common: Common | None, ask: Callable[[Client], Awaitable[Group]], done: str) -> int:
    async def work(client: Client, screen: Screen) -> None:
        group = await ask(client)
        screen.show_line(group, f"group {group.name} {done}: {counted(len(group.members), 'member')}")

    return talk(common, work, bears_restarts=True)


def _facts(group: Group) -> Table:
    facts = facts_table()
    for name, value in (
        ("group", group.name),
        ("members", str(len(group.members))),
        ("made by", group.created_by),
        ("at", timestamp(group.created_at_ms / 1000)),
    ):
        facts.add_row(name, value)
    return facts


def _members(group: Group) -> Table:
    made = table("member", "added at")
    for user, added_at_ms in sorted(group.members.items(), key=lambda member: (member[1], member[0])):
        made.add_row(user, timestamp(added_at_ms / 1000))
    return made
