"""The command `headrace web login`: a session of a browser at a shared web service."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

from headrace.client import Client
from headrace.client.tokens import token_lifetime_ms
from headrace.client.web_login import log_in_browser
from headrace_cli.session import Common, Switch, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.times import timestamp


def login(
    url: str,
    /,
    *,
    read_only: Switch = False,
    expires: str = "12h",
    ca: Path | None = None,
    no_open: Switch = False,
    common: Common | None = None,
) -> int:
    """Log a browser in at a shared web service, under your name.

    Prints an address that lets one browser in within a minute, and opens it. The web service then acts with a token that
    `headrace token list` shows, until the token expires or you log out or revoke it. Log in only at a service that you trust with your
    rights.

    Examples of use:

        headrace web login https://headrace.example:8040

        headrace web login https://headrace.example:8040 --read-only --expires 1h --no-open

    Parameters
    ----------
    url
        Address of the service, with https://.
    read_only
        The server refuses every request of the session that changes something.
    expires
        Time until the session ends, from 1s to 366d.
    ca
        File with the authority of the service's certificate, in PEM. Default: the system's authorities and the authority of the cluster.
    no_open
        Only print the address. Without a display, and with --json, this is the default.
    """
    duration_ms = token_lifetime_ms(expires, place="--expires")

    async def work(client: Client, screen: Screen) -> None:
        made = await log_in_browser(client, url, ca_file=str(ca or ""), read_only=read_only, lifetime_ms=duration_ms)
        if screen.json:
            screen.print_line({"url": made.url, "lifetime_s": made.lifetime_s, "token": made.token})
        else:
            screen.print_raw(f"open   {made.url}")
            rights = "reads only" if read_only else f"has the rights of {client.user}"
            ends = timestamp(made.token.expires_at_ms / 1000)
            screen.say(f"within {made.lifetime_s} s, once; the session {rights}, and ends at {ends}")
        if not (no_open or screen.json) and has_display(os.environ):
            await anyio.to_thread.run_sync(webbrowser.open, made.url)

    return talk(common, work, bears_restarts=True)


def has_display(environment: Mapping[str, str]) -> bool:
    """True if a browser would open a window. Without a display, `webbrowser` would start a browser in this terminal."""
    return sys.platform == "darwin" or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))
