"""The Python programs that a page shows, each run by an interpreter of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.headrace_up import Up

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def programs(page: str) -> list[str]:
    """The programs of a page of docs/how-to, in their order."""
    return re.findall(r"(?ms)^```python\n(.*?)^```$", (HOW_TO / page).read_text())


def printed(up: Up, program: str, folder: Path, *words: str) -> list[str]:
    """The lines that a program prints when it runs in a folder. It must succeed and write no warnings."""
    environment = os.environ | {"HEADRACE_STATE": str(up.state)}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()
