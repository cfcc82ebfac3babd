"""The commands `headrace user …`: the people whom a cluster's server admits."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
from cyclopts import App

from headrace.client.places.endpoint import AUTHORITY_FILE, CREDENTIAL_FILE
from headrace.errors import BadInput
from headrace.ids import user_name
from headrace.near import hint
from headrace_cli.cluster.command import say_administrators
from headrace_cli.cluster.folder import ClusterFolder, ClusterOptions
from headrace_cli.cluster.push import tell_server
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen

app = App(name="user", help="Let people into a cluster, and shut them out.")


@app.command
def add(name: str, /, *, cluster: Path) -> int:
    """Make a credential by which a person speaks in their own name, and in no other.

    Give the person the folder that the command prints, in a way that nobody else can read it.

    Examples:

        headrace user add ada --cluster cluster

    Parameters
    ----------
    name
        The person's name, as operations and rights on pools have it.
    cluster
        Folder of `headrace cluster init`.
    """
    folder, options = _cluster(cluster)
    person = folder.person(user_name(name))
    folder.write(options, people=[user_name(name)])
    screen = Screen()
    ca_file = f" --ca-file {AUTHORITY_FILE}" if (person / AUTHORITY_FILE).exists() else ""
    screen.print_raw(str(person))
    screen.say(f"in it: headrace login {options.url} --credential-file {CREDENTIAL_FILE}{ca_file}", whole=True)
    if not folder.authority.exists():
        screen.say("the server knows the credential once it was sent a SIGHUP")
    if options.everybody_administers:
        say_administrators(screen, options, cluster)
    return Exit.DONE


@app.command
def remove(name: str, /, *, cluster: Path) -> int:
    """Let a person in no more. Their operations stay as they are.

    With an operator, the running server is informed and the person's connections end at once. Otherwise send the server a SIGHUP.

    Examples:

        headrace user remove ada --cluster cluster

    Parameters
    ----------
    name
        The person's name.
    cluster
        Folder of `headrace cluster init`.
    """
    folder, options = _cluster(cluster)
    person = folder.person(user_name(name))
    if not person.is_dir():
        people = [path.name for path in person.parent.iterdir()] if person.parent.is_dir() else []
        raise BadInput("name", name, hint(name, people) if people else "nobody was let in yet")
    shutil.rmtree(person)
    folder.write(options)
    screen = Screen()
    if not folder.authority.exists():
        screen.say(f"{name} is let in no more once the server was sent a SIGHUP")
        return Exit.DONE
    screen.say(f"the credential of {name} is revoked; telling the server, as `headrace cluster push` does")
    anyio.run(tell_server, cluster.absolute())
    screen.say("the server knows it")
    return Exit.DONE


def _cluster(path: Path) -> tuple[ClusterFolder, ClusterOptions]:
    folder = ClusterFolder(path.absolute())
    options = folder.options()
    if options is None:
        raise BadInput("--cluster", str(path), "a folder with client/cluster.json, as `headrace cluster init` makes it")
    return folder, options
