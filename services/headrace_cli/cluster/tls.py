"""The command `headrace tls …`: make certificates if no other authority issues them."""

from __future__ import annotations

import datetime
from pathlib import Path

from cyclopts import App

from headrace.files.foreign_folder import refuse_foreign_folder
from headrace_cli.cluster.certificates import write_certificates
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen

app = App(name="tls", help="Make certificates for a server if you have no certificate authority.")


@app.command
def init(folder: Path, name: str, /, *others: str) -> int:
    """Make a development certificate authority, and a server certificate signed by it.

    If run again, it keeps the authority and makes a new certificate for the server, which is valid for 397 days.

    Examples of use:

        headrace tls init tls 10.0.0.1

        headrace tls init tls headrace.example 10.0.0.1

    Parameters
    ----------
    folder
        Folder for the files; made if missing. Keep `ca.key` in it off all hosts of the cluster.
    name
        DNS name or address at which the server is reached.
    others
        More DNS names or addresses of the server.
    """
    refuse_foreign_folder(folder.absolute(), "FOLDER")
    fingerprint = write_certificates(folder.absolute(), [name, *others], datetime.datetime.now(datetime.UTC))
    Screen().out.print(f"{folder}: server.pem, server.key, and ca.pem with SHA-256 {fingerprint}", soft_wrap=True)
    return Exit.DONE
