"""`headrace completion`: the script that teaches a shell, and the command that it asks at every Tab."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Literal

import msgspec
from cyclopts import App

from headrace_cli.completion.bash_line import BashLine, read_line
from headrace_cli.completion.candidates import Completion, Mark, candidates
from headrace_cli.completion.names import known_names
from headrace_cli.completion.slot import find_slot

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell, /) -> None:
    """Print the script by which a shell completes commands, options, and the names of pools, operations, nodes and trees.

    Names are those that the running Headrace knows. Without one, or where it does not answer within a second, only they are missing.
    docs/how-to/completion.md has more.

    Examples:

        headrace completion bash > ~/.local/share/bash-completion/completions/headrace

        headrace completion zsh > ~/.zfunc/_headrace     # and in ~/.zshrc: fpath=(~/.zfunc $fpath); autoload -U compinit; compinit

        headrace completion fish > ~/.config/fish/completions/headrace.fish

        source <(headrace completion bash)               # only in this terminal; zsh likewise; fish: headrace completion fish | source

    Parameters
    ----------
    shell
        bash 4.4, zsh 5 or fish 3.1, or newer.
    """
    print(files("headrace_cli.completion").joinpath(f"headrace.{shell}").read_text(), end="")


def answer(app: App, shell: str, words: Sequence[str]) -> None:
    """Prints what can stand at the cursor, a candidate a line, and nothing where anything is wrong.

    `words` are those behind `headrace` up to the cursor, the last one under it, or from bash the line up to the cursor in two parts, the
    one that stays and the one that is replaced.
    """
    # Whatever went wrong would appear amid the line that somebody is typing.
    with suppress(Exception):
        line = read_line(*words) if shell == "bash" else None
        slot = find_slot(app, line.words if line is not None else words)
        for candidate in candidates(slot, known_names(slot)):
            fitting = candidate if line is None else _fitting(line, candidate)
            if fitting is not None:
                sys.stdout.write(fitting.line() + "\n")


def _fitting(line: BashLine, candidate: Completion) -> Completion | None:
    """The text that bash inserts. None for one that the word under the cursor does not lead to."""
    if candidate.mark not in (Mark.WORD, Mark.PART):
        return candidate
    written = line.written(candidate.value)
    return msgspec.structs.replace(candidate, value=written) if written else None
