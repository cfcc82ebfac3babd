"""Log lines: one JSON object each, with the names that every service uses."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import PurePath

import pytest

from headrace.obs import logging
from headrace.obs.logging import configure, logger, lost_lines
from headrace.obs.tracing import span
from tests.support.spans import tracing_on


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """What a service writes that was told to log from `info` on."""
    written = StringIO()
    monkeypatch.setattr(logging, "_output", logging._Output())
    configure("allocator", "info", written)
    return written


def test_a_line_has_the_service_the_level_the_moment_and_all_fields(written: StringIO) -> None:
    logger(node="alpha").info("job started", operation="o-1", folder=PurePath("/tmp/o-1"))

    line = json.loads(written.getvalue())
    now = line.pop("at")
    assert now.endswith("Z")
    assert line == {
        "level": "info",
        "service": "allocator",
        "event": "job started",
        "node": "alpha",
        "operation": "o-1",
        "folder": "/tmp/o-1",
    }


def test_nothing_below_the_level_is_written(written: StringIO) -> None:
    logger().debug("seen")

    assert written.getvalue() == ""


def test_an_exception_is_written_with_its_traceback(written: StringIO) -> None:
    try:
        raise ValueError("no such thing")
    except ValueError as error:
        logger().error("update failed", exception=error)

    said = json.loads(written.getvalue())["exception"]
    assert said.startswith("Traceback")
    assert said.endswith("ValueError: no such thing\n")


def test_a_level_that_there_is_not_is_refused() -> None:
    with pytest.raises(KeyError):
        configure("allocator", "loud")


def test_a_service_starts_without_what_only_people_look_at() -> None:
    services = ("admission", "agent", "allocator", "fair_share", "integral")
    words = f"import sys, {', '.join(f'headrace_{name}.__main__' for name in services)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)

    assert not {"rich", "cyclopts", "matplotlib", "plotille"} & set(done.stdout.split())


class FullDisk(StringIO):
    """A file on a disk that may have no room."""

    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            super().write(text[:9])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_lines_for_which_the_disk_has_no_room_end_nobody_and_are_told_of_later(written: StringIO) -> None:
    disk = FullDisk()
    configure("allocator", "info", disk)
    logger().info("lost")
    logger().info("lost too")
    disk.is_full = False
    logger().info("there is room")
    logger().info("and more")

    lines = [json.loads(line) for line in disk.getvalue().splitlines() if line.endswith("}")]
    assert [line["event"] for line in lines] == ["log lines lost", "there is room", "and more"]
    assert lines[0]["lines"] == lost_lines() == 2


def test_a_line_written_in_a_span_names_its_trace(written: StringIO) -> None:
    with tracing_on(), span("start") as context:
        logger().info("inside")
    logger().info("outside")

    inside, outside = map(json.loads, written.getvalue().splitlines())
    assert context is not None
    assert inside["trace"] == context.trace_id
    assert "trace" not in outside
