"""The command `headrace completion`: print the script that makes a shell call Headrace at every Tab."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell, /) -> None:
    """Print the script by which a shell completes commands, options, and the names of pools, operations, nodes and trees.

    Names come from the running Headrace. If none is running or it does not answer within a second, only the names are missing.
    docs/how-to/completion.md has more.

    Examples of use:

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
