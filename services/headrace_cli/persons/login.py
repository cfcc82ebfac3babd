"""The commands `headrace login`, `logout` and `whoami`: choose the cluster and the user name for later commands."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import anyio
from rich.table import Table

from headrace.bus.credential_files import read_credential
from headrace.client import Client, connect, find_place
from headrace.client.places.credential_user import person_in
from headrace.client.places.endpoint import Endpoint
from headrace.client.places.kept import SavedServers
from headrace.counted import counted
from headrace.errors import BadInput, said_of
from headrace.server_urls import parse_server_urls
from headrace.suggestions import hint
from headrace.wire.groups import GroupSource
from headrace.wire.rights import Rights
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common, talk
from headrace_cli.show.rights import reasons
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import facts_table, table

_SOURCES = {GroupSource.HEADRACE: "", GroupSource.HOST: " (of the host)", GroupSource.LOGIN: " (of the credential)"}


def login(
    url: str,
    /,
    *,
    credential_file: Path,
    ca_file: Path | None = None,
    name: str = "",
    user: str = "",
    tree: str = "",
) -> int:
    """Send later commands to a cluster, under your name.

    The command first asks the cluster who you are, and stores nothing if that fails. Copies of the credential and of the authority, which
    only you can read, are stored below `$XDG_CONFIG_HOME/headrace/places`, or `~/.config/headrace/places`. If you have several logins,
    commands use the login that `$HEADRACE_PLACE` names, or else the last login.

    Examples of use:

        headrace login tls://10.0.0.1:4222 --credential-file credential --ca-file ca.pem

        headrace login nats://10.0.0.2:4222 --credential-file other/credential --name test

    Parameters
    ----------
    url
        Address of the cluster's server. Separate several servers by commas.
    credential_file
        File with the credential that you were given, readable only by you.
    ca_file
        Certificate authority of the server. Default: `ca.pem` beside the credential, or the system's authorities.
    name
        Name of the cluster on this machine. Default: the host in the address.
    user
        Your user name, if the credential allows any name.
    tree
        Tree for commands that name no tree. Default: `default`.
    """
    places = SavedServers()
    urls = parse_server_urls(url, place="address")
    for each in urls:
        if urlsplit(each).password is not None or urlsplit(each).username is not None:
            raise BadInput.because("address", "leave the user and the password out; use --credential-file")
    chosen = name or (urlsplit(urls[0]).hostname or "").lower()
    places.folder(chosen)
    person = person_in(read_credential(str(credential_file))) or user
    if user and user != person:
        raise BadInput("--user", user, f"{person}, the name in the credential")
    place = find_place(url=url, credential_file=credential_file, ca_file=ca_file, tree=tree)

    async def rights() -> Rights:
        asking = connect(url=url, credential_file=credential_file, ca_file=ca_file, user=person, tree=tree)
        async with asking as client:
            return await client.persons.rights()

    known = anyio.run(rights)
    endpoint = Endpoint(url=url, tree=place.tree, user=known.user)
    kept = places.keep(chosen, endpoint, place.credential_file, place.ca_file)
    Screen().say(f"{known.user} at {url}, stored as {chosen} in {kept}", whole=True)
    return Exit.DONE


def logout(name: str = "", /) -> int:
    """Forget a login: remove its cluster and its credential from this machine.

    The credential itself stays valid: `headrace user remove` revokes it.

    Examples of use:

        headrace logout

        headrace logout test

    Parameters
    ----------
    name
        Name of the login. Default: the login that is used now.
    """
    places = SavedServers()
    chosen = name or places.current()
    if not chosen:
        raise BadInput.because(
            "name", f"no login is named; {said_of(hint('', places.names()))}" if places.names() else "there is no login"
        )
    places.forget(chosen)
    left = ", ".join(places.names())
    Screen().say(f"{chosen} is forgotten" + (f"; other logins: {left}" if left else ""))
    return Exit.DONE


def whoami(*, common: Common | None = None) -> int:
    """Show your user name, your groups, your cluster and your rights.

    A right on a pool also holds for all pools below it. A pool that is not listed has the rights of its parent.

    Examples of use:

        headrace whoami

        headrace whoami --json
    """

    async def work(client: Client, screen: Screen) -> None:
        place = find_place(state=(common or Common()).state)
        rights = await client.persons.rights()
        told = {"user": rights.user, "place": place.where, "url": place.url, "administrator": rights.administrator}
        groups = [f"{each.name}{_SOURCES[each.source]}" for each in rights.groups]
        if screen.json:
            screen.print_line({**told, "groups": rights.groups, "pools": rights.pools, "left_out": rights.left_out})
            return
        screen.print(_facts({**told, "groups": ", ".join(groups) or "none"}), "", _rights_table(rights))
        if rights.left_out:
            screen.say(f"and {counted(rights.left_out, 'more pool')}")

    return talk(common, work)


def _facts(told: dict[str, object]) -> Table:
    facts = facts_table()
    for name, value in told.items():
        facts.add_row(name, {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value))
    return facts


def _rights_table(rights: Rights) -> Table:
    made = table("tree", "pool", "you may", "because of")
    for row in rights.pools:
        why = "you are an administrator" if rights.administrator else reasons(row)
        made.add_row(row.tree, row.pool, ", ".join(row.rights) or "nothing", why)
    return made
