"""The commands `headrace user …`: the people whom a cluster's server admits."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
from cyclopts import App

from headrace.client.places.endpoint import AUTHORITY_FILE, CREDENTIAL_FILE
from headrace.errors import BadInput, said_of
from headrace.ids import user_name
from headrace.suggestions import hint
from headrace_cli.cluster.command import say_administrators
from headrace_cli.cluster.folder import ClusterFolder, ClusterOptions
from headrace_cli.cluster.push import tell_server
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen

app = App(name="user", help="Admit people to a cluster, and remove them.")


@app.command
def add(name: str, /, *, cluster: Path) -> int:
    """Make a credential for a person, which is valid only under the name of that person.

    Give the person the folder that the command prints, in a way that nobody else can read it.

    Examples of use:

        headrace user add ada --cluster cluster

    Parameters
    ----------
    name
        The person's name, as operations and rights on pools show it.
    cluster
        Folder of `headrace cluster init`.
    """
    folder, options = _cluster(cluster)
    person = folder.person(user_name(name))
    folder.write(options, people=[user_name(name)])
    screen = Screen()
    ca_file = f" --ca-file {AUTHORITY_FILE}" if (person / AUTHORITY_FILE).exists() else ""
    screen.print_raw(str(person))
    screen.say(
        f"run in that folder: headrace login {options.url} --credential-file {CREDENTIAL_FILE}{ca_file}", whole=True
    )
    if not folder.authority.exists():
        screen.say("send the server a SIGHUP: then it accepts the credential")
    if options.everybody_administers:
        say_administrators(screen, options, cluster)
    return Exit.DONE


@app.command
def remove(name: str, /, *, cluster: Path) -> int:
    """Remove a person from the cluster. The person's operations stay as they are.

    With an operator, the running server is informed and the person's connections end at once. Otherwise send the server a SIGHUP.

    Examples of use:

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
        raise BadInput.because(
            "name",
            f"there is no person {name}; {said_of(hint(name, people)) if people else 'the cluster has no people'}",
        )
    shutil.rmtree(person)
    folder.write(options)
    screen = Screen()
    if not folder.authority.exists():
        screen.say(f"{name} is removed. Send the server a SIGHUP: then it refuses the credential")
        return Exit.DONE
    screen.say(
        f"the credential of {name} is revoked; sending the revocation to the server, as `headrace cluster push` does"
    )
    anyio.run(tell_server, cluster.absolute())
    screen.say("the server has revoked the credential")
    return Exit.DONE


def _cluster(path: Path) -> tuple[ClusterFolder, ClusterOptions]:
    folder = ClusterFolder(path.absolute())
    options = folder.options()
    if options is None:
        raise BadInput("--cluster", str(path), "a folder with client/cluster.json, as `headrace cluster init` makes it")
    return folder, options
