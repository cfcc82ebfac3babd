"""The command `headrace web`: the HTTP API and the console, on this machine or for everybody in a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from cyclopts import App, Parameter

from headrace.errors import BadInput
from headrace.installation.extras import require
from headrace.runtime.readiness import Readiness
from headrace_cli.exit_statuses import Exit
from headrace_cli.option_values import Whole
from headrace_cli.session import InTree, Switch, own_readiness
from headrace_cli.show.screen import Screen
from headrace_cli.up.configuration import DEFAULT_WEB_PORT

if TYPE_CHECKING:
    from headrace_web.server import Listening, Options

_HIGHEST_PORT = 65_535


@Parameter(name="*")
@dataclass(frozen=True)
class SharedOptions:
    """Options of `headrace web` for serving everybody in a cluster, instead of only the user who starts it."""

    listen: str = ""
    """Serve everybody in the cluster at this address and port, such as 0.0.0.0:8040, with TLS."""
    certificate: Path | None = None
    """File with the certificate of that address, in PEM."""
    key: Path | None = None
    """File with the key of the certificate, in PEM."""

    def files(self) -> tuple[str, str]:
        """Return the files of the certificate and of its key. Raises `BadInput` if one of them is given without `--listen`."""
        if not self.listen and (self.certificate or self.key):
            raise BadInput("--certificate", str(self.certificate or self.key), "files for the address of --listen")
        return str(self.certificate or ""), str(self.key or "")


app = App(name="web")
app.command("headrace_cli.commands.web_login:login", name="login")


@app.default
def web(
    *,
    port: Whole = DEFAULT_WEB_PORT,
    read_only: Switch = False,
    shared: SharedOptions | None = None,
    common: InTree | None = None,
) -> int:
    """Serve the HTTP API and a page for the browser on this machine.

    It listens on 127.0.0.1 until Ctrl-C, and acts under your name. The printed address contains a ticket that lets one browser in; after
    each use a new address is printed. A program sends the header in the file whose path is printed too, and which only you can read:
    `curl -H @FILE http://127.0.0.1:8040/api/v1/operations`.

    With `--listen` it serves everybody in the cluster, with TLS. Programs need tokens of `headrace token create`, and `headrace web login`
    lets browsers in. The service then needs no login, only the address of the cluster: each request has the rights of the person who
    sends it.

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
    """
    if not 0 <= port <= _HIGHEST_PORT:
        raise BadInput("--port", port, f"a port from 0 to {_HIGHEST_PORT}")
    require("web", "headrace web")
    from headrace_web.server import Options

    common, shared = common or InTree(), shared or SharedOptions()
    screen = Screen(json=common.json)
    state = None if common.state is None else str(common.state)
    options = Options(port, read_only, state, common.tree, None, shared.listen, *shared.files())
    anyio.run(_serve, options, _Announcement(screen, own_readiness(), is_shared=bool(shared.listen)))
    return Exit.DONE


async def _serve(options: Options, announcement: _Announcement) -> None:
    from headrace_web.server import serve

    interrupted = False
    async with announcement.readiness.kept_alive():
        # A task group would wrap the interrupt, and the exit status would be another one.
        try:
            await serve(options, announcement.tell)
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt


class _Announcement:
    """Prints at which address the service listens, and each new ticket. Tells systemd that the service listens."""

    def __init__(self, screen: Screen, readiness: Readiness, *, is_shared: bool) -> None:
        self.readiness = readiness
        self._screen = screen
        self._is_shared = is_shared
        self._is_first = True

    def tell(self, listening: Listening) -> None:
        """Print the addresses in `listening`: for the browser, and at the beginning for programs."""
        self.readiness.ready(f"serves {listening.api}")
        screen, is_first, self._is_first = self._screen, self._is_first, False
        if screen.json:
            screen.print_line(listening)
        elif self._is_shared:
            screen.print_raw(f"API    {listening.api}")
            screen.say(
                "programs need a token of `headrace token create`, browsers `headrace web login`; Ctrl-C ends it"
            )
        else:
            screen.print_raw(f"open   {listening.url}" if is_first else f"again  {listening.url}")
            if is_first:
                screen.print_raw(f"API    curl -H @{listening.header_file} {listening.api}/operations")
                screen.say(
                    f"as {listening.user}, tree {listening.tree}; each address admits one browser; press Ctrl-C to stop"
                )
