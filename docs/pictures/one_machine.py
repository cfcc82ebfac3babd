"""Records the real run of docs/how-to/integral-guarantees.md: the page's own commands, on this machine, in real time.

    python docs/pictures/one_machine.py

It takes a minute and a half and writes docs/pictures/one-machine.json, from which the picture is drawn.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Final

ROOT_FOLDER: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT_FOLDER), str(ROOT_FOLDER / "shared"), str(ROOT_FOLDER / "services")]

import anyio  # noqa: E402
import msgspec  # noqa: E402

import headrace  # noqa: E402
from docs.pictures.integral_guarantees import ONE_MACHINE, PAGE  # noqa: E402
from headrace.wire.history import PoolHistory  # noqa: E402
from tests.support.headrace_up import Up  # noqa: E402

__all__ = ["commands", "up_of_the_page"]

#: Until the savings are full, and until the burst is over and the rest of the work done.
_SAVING_S = 33.0
_BURST_S = 45.0
_BLOCK: Final = re.compile(r"<!-- commands: (\w+) -->\n```\n(.*?)```\n", re.DOTALL)


def commands(name: str) -> list[list[str]]:
    """The words of each `headrace …` of a block of the page, without `headrace`."""
    blocks = dict(_BLOCK.findall(PAGE.read_text()))
    return [shlex.split(line)[1:] for line in blocks[name].splitlines()]


def up_of_the_page() -> Up:
    """The `headrace up` of the page, not started yet."""
    blocks = dict(_BLOCK.findall(PAGE.read_text()))
    setting, _, *rest = shlex.split(blocks["up"])
    variable, _, value = setting.partition("=")
    up = Up(nodes=(rest[rest.index("--node") + 1],))
    up.environment[variable] = value
    return up


async def _history(state: Path) -> PoolHistory:
    now_ms = time.time_ns() // 1_000_000
    async with headrace.connect(state=state) as client:
        return await client.pools.history(
            "nightly", since_ms=now_ms - 300_000, until_ms=now_ms, points=1_000, from_oldest=True
        )


def main() -> None:
    """Runs the page's commands and keeps what the burst pool's history says afterwards."""
    with up_of_the_page() as up:
        for block, wait_s in (("pools", 0.0), ("work", _SAVING_S), ("burst", _BURST_S)):
            for words in commands(block):
                print("headrace", *words, flush=True)
                up.run(*words)
            time.sleep(wait_s)
        found = anyio.run(_history, up.state)
    ONE_MACHINE.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=0) + b"\n")
    print(f"wrote {ONE_MACHINE.relative_to(ROOT_FOLDER)}: {len(found.points)} points", os.linesep, end="")


if __name__ == "__main__":
    main()
