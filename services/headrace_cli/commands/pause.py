"""The commands `headrace pause` and `headrace resume`: switches for administrators, stored with the options of a tree."""

from __future__ import annotations

from typing import Final, Literal

from headrace_cli.session import InTree, change

What = Literal["starts", "preemption"]
_NOTE: Final = {"starts": "running jobs continue", "preemption": "preemptions that have begun are completed"}


def pause(what: What, /, *, common: InTree | None = None) -> int:
    """Pause starts or preemption in a tree until it is resumed. A pause survives restarts.

    Examples of use:

        headrace pause starts

        headrace pause preemption --tree gpu

    Parameters
    ----------
    what
        `starts`: no job starts, and running jobs continue. `preemption`: nothing is preempted.
    """
    return _switch(what, common, to=True)


def resume(what: What, /, *, common: InTree | None = None) -> int:
    """End a pause.

    Examples of use:

        headrace resume starts

    Parameters
    ----------
    what
        What was paused.
    """
    return _switch(what, common, to=None)


def _switch(what: What, common: InTree | None, *, to: bool | None) -> int:
    done = f"{what} paused; {_NOTE[what]}" if to else f"{what} resumed"
    return change(common, lambda client: client.trees.set(client.trees.own, {f"pause_{what}": to}), done)
