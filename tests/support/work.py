"""What a function costs, counted in lines of Python that it runs: the same on a busy machine as on an idle one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

__all__ = ["lines_run"]

_PROJECT: Final = tuple(f"{Path(__file__).parents[2]}/{folder}/" for folder in ("services", "shared", "tests"))


def lines_run(work: Callable[[], object]) -> int:
    """Run a function. Return the lines that it ran, as often as it ran them, but for those of libraries.

    A library prepares things at its first call, such as msgspec the types that it decodes.
    """
    lines = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.startswith(_PROJECT):
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines
