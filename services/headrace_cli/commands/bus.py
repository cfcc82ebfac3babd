"""The commands `headrace bus …`: the buckets and streams that services keep at the NATS server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import anyio
from cyclopts import App, Parameter
from rich.table import Table

from headrace.bus.provisioning import Provisioned, RecordBounds
from headrace.client import find_place
from headrace.durations import parse_duration_ms
from headrace.ids import tree_name
from headrace.resources import parse_amount
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import table
from headrace_cli.stores import as_provisioner, provision_at

app = App(name="bus", help="Make the buckets and streams that services need.")


@app.command
def provision(
    *,
    tree: Annotated[list[str] | None, Parameter(negative=())] = None,
    replicas: Literal[1, 3, 5] | None = None,
    history_age: str | None = None,
    history_room: str | None = None,
    credential_file: Path | None = None,
    ca_file: Path | None = None,
    common: Common | None = None,
) -> int:
    """Make the buckets and streams that services need, and report which were made, changed and found.

    The column `copies` counts the servers that have a complete copy.
    Services wait for missing buckets and streams, and make none. Existing ones are kept, so the command can be run at any time.
    `headrace up` does this automatically.

    Examples of use:

        headrace bus provision

        headrace bus provision --tree default --tree gpu

        HEADRACE_NATS_URL=nats://a:4222,nats://b:4222 headrace bus provision --replicas 3 --credential-file provisioner

    Parameters
    ----------
    tree
        A tree to serve; each tree has streams of its own. May be repeated. Default: `$HEADRACE_TREE`, else `default`.
    replicas
        Number of servers that store each bucket and stream. Unless given, existing ones keep their number and new ones get 1.
    history_age
        How long records of pools are kept, such as 30d. Existing streams are changed too. Default for new streams: 7d.
    history_room
        Space for the records of a tree's pools, such as 2G. Existing streams are changed too. Default for new streams: 512 MiB.
    credential_file
        Credential of the provisioner. Default: `$HEADRACE_CREDENTIAL_FILE`, else the credential in the state folder.
    ca_file
        Certificate authority of the server. Default: `$HEADRACE_CA_FILE`, else `ca.pem` beside the credential.
    """
    common = common or Common()
    place = find_place(state=common.state, credential_file=credential_file, ca_file=ca_file)
    if credential_file is None:
        place = as_provisioner(place)
    screen = Screen(json=common.json)
    trees = [tree_name(each) for each in tree or [place.tree]]
    records = _bounds(history_age, history_room) if history_age or history_room else None
    done = anyio.run(provision_at, place, trees, replicas, records)
    screen.show({"provisioned": done}, _table(done))
    return Exit.DONE


def _bounds(age: str | None, room: str | None) -> RecordBounds:
    """Return the limits of age and size for records of pools. A limit that is not given on the command line is the limit of new streams.

    Raises `BadInput`.
    """
    usual = RecordBounds()
    return RecordBounds(
        parse_duration_ms(age, place="--history-age") / 1000 if age else usual.max_age_s,
        parse_amount("memory", room, place="--history-room") if room else usual.max_bytes,
    )


def _table(done: Sequence[Provisioned]) -> Table:
    made = table("kind", "name", "", "replicas", "copies", right=("replicas", "copies"))
    for each in done:
        outcome = ": ".join(filter(None, (each.outcome, ", ".join(each.changes))))
        made.add_row(each.kind.value, each.name, outcome, str(each.replicas), str(each.copies))
    return made
