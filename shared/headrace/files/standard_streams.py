"""The standard streams of a process whose caller has closed some of them."""

from __future__ import annotations

import os
import sys
from typing import Final

_STDERR: Final = 2


def open_streams() -> None:
    """Open the standard streams that the caller has closed, so that no connection gets their file descriptors."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(opened)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w")
