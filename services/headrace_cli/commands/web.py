"""The command `headrace web`: the HTTP API and the page for the browser, on this machine."""

from __future__ import annotations

from pathlib import Path

import anyio

from headrace.errors import BadInput
from headrace.installation.extras import require
from headrace_cli.exit_statuses import Exit
from headrace_cli.option_values import Whole
from headrace_cli.session import InTree, Switch
from headrace_cli.show.screen import Screen
from headrace_cli.up.configuration import DEFAULT_WEB_PORT

_HIGHEST_PORT = 65_535


def web(
    *,
    port: Whole = DEFAULT_WEB_PORT,
    read_only: Switch = False,
    listen: str = "",
    certificate: Path | None = None,
    key: Path | None = None,
    common: InTree | None = None,
) -> int:
    """Serve the HTTP API and a page for the browser on this machine.

    It listens on 127.0.0.1 until Ctrl-C, and acts under your name. The printed address contains a ticket that lets one browser in; after
    each use a new address is printed. A program sends the header in the printed file, which only you can read:
    `curl -H @FILE http://127.0.0.1:8040/api/v1/operations`.

    With `--listen` it serves the HTTP API to everybody who has a token of `headrace token create`, with TLS. It then uses only the address
    of the cluster and needs no login: each request acts under the credential in its token.

    Examples of use:

        headrace web

        headrace web --port 0 --read-only

        headrace web --listen 0.0.0.0:8040 --certificate cert.pem --key key.pem

    Parameters
    ----------
    port
        Port on 127.0.0.1; 0: any free one.
    read_only
        Refuse every request that changes something.
    listen
        Address and port for everybody who has a token.
    certificate
        File with the certificate of that address, in PEM.
    key
        File with the key of the certificate, in PEM.
    """
    if not 0 <= port <= _HIGHEST_PORT:
        raise BadInput("--port", port, f"a port from 0 to {_HIGHEST_PORT}")
    require("web", "headrace web")
    from headrace_web.server import Listening, Options, serve

    common = common or InTree()
    screen = Screen(json=common.json)
    state = None if common.state is None else str(common.state)
    is_first = True

    def tell(listening: Listening) -> None:
        nonlocal is_first
        if screen.json:
            screen.print_line(listening)
        elif listen:
            screen.print_raw(f"API    {listening.api}")
            screen.say("for everybody who has a token of `headrace token create`; Ctrl-C ends it")
        else:
            screen.print_raw(f"open   {listening.url}" if is_first else f"again  {listening.url}")
            if is_first:
                screen.print_raw(f"API    curl -H @{listening.header_file} {listening.api}/operations")
                screen.say(
                    f"as {listening.user}, tree {listening.tree}; each address lets one browser in; Ctrl-C ends it"
                )
        is_first = False

    files = (str(certificate or ""), str(key or ""))
    anyio.run(serve, Options(port, read_only, state, common.tree, None, listen, *files), tell)
    return Exit.DONE
