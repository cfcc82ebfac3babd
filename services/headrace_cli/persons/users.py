"""The commands `headrace user …`: the people whom a cluster's server admits."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
from cyclopts import App

from headrace.client.places.endpoint import AUTHORITY_FILE, CREDENTIAL_FILE
from headrace.errors import BadInput, said_of
from headrace.ids import GroupName, group_name, user_name
from headrace.suggestions import hint
from headrace.wire.groups import MOST_GROUPS_OF_A_LOGIN
from headrace_cli.cluster.command import say_administrators
from headrace_cli.cluster.folder import ClusterFolder, ClusterOptions
from headrace_cli.cluster.push import tell_server
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen

app = App(name="user", help="Admit people to a cluster, and remove them.")


@app.command
def add(name: str, /, *, cluster: Path, groups: str | None = None) -> int:
    """Make a credential for a person, which is valid only under the name of that person.

    Give the person the folder that the command prints, in a way that nobody else can read it. If `--groups` names other groups than before,
    the command makes a new credential, and revokes the former credential.

    Examples of use:

        headrace user add ada --cluster cluster

        headrace user add ada --groups students,ml --cluster cluster

    Parameters
    ----------
    name
        The person's name, as operations and rights on pools show it.
    cluster
        Folder of `headrace cluster init`.
    groups
        Groups in which the person is while connected with this credential, separated by commas; '' for none. Default: as before.
    """
    folder, options = _cluster(cluster)
    person = folder.person(user_name(name))
    had_groups, is_new = folder.groups_of(user_name(name)), not person.is_dir()
    wanted = had_groups if groups is None else read_groups(groups)
    if groups is not None:
        folder.set_groups(user_name(name), wanted)
    folder.write(options, people=[user_name(name)])
    screen = Screen()
    # The server is asked even if the groups are as before: an earlier attempt may have been interrupted before the server was.
    if groups is not None and not is_new and folder.operator().has_revoked:
        anyio.run(tell_server, cluster.absolute())
        screen.say(
            f"credentials of {name} with other groups are revoked: give the person the credential in this folder"
        )
    if wanted and not had_groups:
        screen.say(
            "restart admission if it ran before the first person had groups: then it counts groups of credentials"
        )
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


def read_groups(text: str) -> tuple[GroupName, ...]:
    """Return the groups of `--groups`. Raises `BadInput`."""
    names = [name for each in text.split(",") if (name := each.strip())]
    if len(names) > MOST_GROUPS_OF_A_LOGIN:
        raise BadInput.because(
            "--groups", f"there are {len(names)} groups; a credential names at most {MOST_GROUPS_OF_A_LOGIN}"
        )
    try:
        return tuple(dict.fromkeys(map(group_name, names)))
    except BadInput as error:
        raise error.at("--groups") from None


@app.command
def remove(name: str, /, *, cluster: Path) -> int:
    """Remove a person from the cluster. The person's operations stay as they are.

    If the folder was made with `--operator`, the running server is informed, and the person's connections end at once. Otherwise send the
    server a SIGHUP. If the command was interrupted, or the server did not answer, type it again.

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
    folder.write(options, removed=[user_name(name)])
    screen = Screen()
    if not folder.authority.exists():
        shutil.rmtree(person)
        screen.say(f"{name} is removed. Send the server a SIGHUP: then it refuses the credential")
        return Exit.DONE
    screen.say(
        f"the credential of {name} is revoked; sending the revocation to the server, as `headrace cluster push` does"
    )
    anyio.run(tell_server, cluster.absolute())
    # The folder of the person is removed last: as long as it exists, an interrupted removal can be repeated.
    shutil.rmtree(person)
    screen.say("the server has revoked the credential")
    return Exit.DONE


def _cluster(path: Path) -> tuple[ClusterFolder, ClusterOptions]:
    folder = ClusterFolder(path.absolute())
    options = folder.options()
    if options is None:
        raise BadInput("--cluster", str(path), "a folder with client/cluster.json, as `headrace cluster init` makes it")
    return folder, options
