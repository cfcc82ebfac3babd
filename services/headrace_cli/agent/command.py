"""`headrace agent …`: this host as a node."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.client.place import state_folder
from headrace.errors import BadInput
from headrace_cli.agent.joining import join_host
from headrace_cli.agent.token import read_token
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Switch
from headrace_cli.show.screen import Screen

app = App(name="agent", help="Make this host a node.")


@app.command
def join(
    url: str = "",
    /,
    *,
    token: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    token_file: Path | None = None,
    folder: Path | None = None,
    no_start: Switch = False,
) -> int:
    """Let this host join by a token, and run its agent.

    The token is used up by it. The node's key is made here and stays here.

    `--token -` and `--token-file` show the token to nobody, where `--token TOKEN` shows it to whoever lists processes.

    Examples:

        headrace agent join --token-file token

        headrace agent join tls://10.0.0.1:4222 --token -

    Parameters
    ----------
    url
        Where the server is reached from here; else as the token says.
    token
        The token that `headrace node token` printed, or `-`: it is read from the standard input.
    token_file
        The file that has it.
    folder
        State folder of the node; else `agent-NODE` in the user's state folder.
    no_start
        Print the command that runs the agent, in place of running it.
    """
    read = read_token(_text(token, token_file))
    folder = (folder or state_folder() / f"agent-{read.node}").absolute()
    joined = join_host(read, url or read.url, folder)
    screen = Screen()
    screen.say(f"this host is node {joined.node} of tree {joined.tree}")
    command = [sys.executable, "-m", "headrace_agent", "--config", joined.settings]
    if no_start:
        screen.print_raw(shlex.join(command))
        return Exit.DONE
    sys.stdout.flush()
    os.execv(command[0], command)


@app.command
def selftest(*, config: Path | None = None) -> int:
    """Try whether jobs can run on this host: limits, processes that they leave behind, accounts, folders. It asks no server.

    The exit status is 1 if one of the trials failed.

    Examples:

        headrace agent selftest

        headrace agent selftest --config ~/.local/state/headrace/agent-host-17/settings.toml

    Parameters
    ----------
    config
        Settings of the agent; else those of the environment, `HEADRACE_AGENT_USERS` for example.
    """
    options = ["--config", str(config.absolute())] if config is not None else []
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "headrace_agent.selftest", *options])


def _text(token: str, file: Path | None) -> str:
    if bool(token) == (file is not None):
        raise BadInput("--token", "(both)" if token else "(nothing)", "--token TOKEN, --token - or --token-file FILE")
    if file is not None:
        return file.read_text(encoding="ascii", errors="replace")
    return sys.stdin.readline() if token == "-" else token
