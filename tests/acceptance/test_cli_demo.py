"""`headrace demo`, as the README's first command runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from headrace_cli.up import process_marks
from tests.support.headrace_up import HEADRACE


def begin_demo(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(
        [*HEADRACE, "demo"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


# Whoever runs the short tests has just seen it, and its jobs take as long as real ones.
@pytest.mark.long
def test_the_demo_shows_every_pool_and_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        demo = begin_demo(Path(folder))
        out, said = demo.communicate()

        assert demo.returncode == 0, said
        table = {line.split()[0]: line for line in out.splitlines()}
        for pool, jobs in (("production", 30), ("research", 20), ("students", 10)):
            assert re.search(rf"cpu \d\.\d\d +cpu \d\.\d\d +{jobs}/{jobs}$", table[pool])
        made_room = re.findall(
            r"^research/(\d) +(?:small|medium|large) +\d+\.\d s +cpu 3\.00 +cpu (\d)\.00 +cpu (\d)\.00$", out, re.M
        )
        assert [int(had) - int(kept) for _, had, kept in made_room] == [1] * len(made_room) != []
        assert all(int(kept) >= 3 for _, _, kept in made_room)
        assert os.listdir(folder) == []


@pytest.mark.long
def test_ctrl_c_ends_the_demo_and_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        demo = begin_demo(Path(folder))
        assert demo.stderr is not None
        for line in demo.stderr:
            if "of 60 jobs done" in line:
                break
        state = next(Path(folder).iterdir())
        assert process_marks.find(state) != []

        demo.send_signal(signal.SIGINT)
        demo.communicate()

        assert demo.returncode == 130
        assert process_marks.find(state) == []
        assert os.listdir(folder) == []
