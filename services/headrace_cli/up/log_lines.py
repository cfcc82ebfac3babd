"""Read the logs of the processes: the last lines when a process ends, and all lines for `--verbose`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import msgspec

_TAIL_BYTES = 64 * 1024
_POLL_S = 0.2


def size_of(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if there is no file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def tail(path: Path, lines: int, *, since: int = 0) -> list[str]:
    """Return the last lines of a file, at most `lines`, and none from before byte `since`."""
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            # If the file is shorter than `since`, it was truncated meanwhile. Then the lines may come from anywhere in the file.
            file.seek(max(since if since <= end else 0, end - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def last_words(path: Path, since: int) -> str:
    """Return why a process ended according to its log: the last error, else the last line, else an empty string."""
    lines = [line for line in tail(path, 50, since=since) if line.strip()]
    for line in reversed(lines):
        words = _error_of(line)
        if words:
            return words
    return lines[-1].strip() if lines else ""


def _error_of(line: str) -> str:
    """Return the text of a log line whose level is error. Empty for any other line."""
    try:
        event = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.DecodeError:
        return ""
    if event.get("level") not in ("error", "critical"):
        return ""
    detail = str(event.get("error") or event.get("exception") or "").strip()
    return ": ".join(filter(None, (str(event.get("event", "")), detail.splitlines()[-1] if detail else "")))


async def follow_logs(logs: Mapping[str, Path], show: Callable[[str], None]) -> None:
    """Show every line that is added to the logs, with the name of its process. Runs until cancelled."""
    places = {name: size_of(path) for name, path in logs.items()}
    width = max(len(name) for name in logs)
    while True:
        for name, path in logs.items():
            if size_of(path) < places[name]:
                places[name] = 0  # the log was truncated
            if size_of(path) == places[name]:
                continue
            data = _read_from(path, places[name])
            whole = data[: data.rfind(b"\n") + 1]
            places[name] += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                show(f"{name:<{width}} | {line}")
        await anyio.sleep(_POLL_S)


def _read_from(path: Path, place: int) -> bytes:
    """Return the bytes of a file from `place` on. Empty if the file was removed meanwhile or cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(place)
            return file.read()
    except OSError:
        return b""
