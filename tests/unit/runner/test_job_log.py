"""Logs as the runner writes them and as the agent reads them back, over rotation and kills."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.wire.heartbeat import JobKey
from headrace_agent.job_logs import reader
from headrace_agent.job_logs.reader import LogPiece, newest_attempt, read_log
from headrace_agent.runner.files.job_log import SMALLEST_CAP_BYTES, LogUnwritable, StreamWriter
from headrace_agent.runner.host.files import LinuxFiles
from tests.unit.runner.builders import OPERATION, a_job
from tests.unit.runner.faulty_files import MortalFiles, PowerCut, ShortWritingFiles, WatchedFiles

HOST = LinuxFiles()
CAP = SMALLEST_CAP_BYTES
HALF = CAP // 2
#: Whatever piece of it one sees, one knows where it is from.
TEXT = b"".join(b"%07d\n" % number for number in range(40_000))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / OPERATION).mkdir()
    return tmp_path


def a_stream(folder: Path, host: LinuxFiles | None = None) -> StreamWriter:
    return StreamWriter(host or HOST, f"{folder}/{OPERATION}/0.1.stdout", CAP, with_tail=True)


def read(folder: Path, offset: int = 0, limit: int = 10**6) -> LogPiece:
    return read_log(str(folder), a_job(), "stdout", offset, limit)


def begin(piece: LogPiece) -> int:
    """The offset of its first byte, behind what was rotated away."""
    return piece.next_offset - len(piece.data)


def size_on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / OPERATION).glob("*.stdout*") if file.suffix != ".at")


def test_nothing_is_made_before_the_first_byte(folder: Path) -> None:
    a_stream(folder)

    assert list((folder / OPERATION).iterdir()) == []
    assert read(folder) == LogPiece(b"", 0, 0, exists=False)


def test_what_was_written_is_read(folder: Path) -> None:
    stream = a_stream(folder)
    stream.write(memoryview(b"hello "))
    assert read(folder) == LogPiece(b"hello ", 6, 6)
    stream.write(memoryview(b"world"))

    assert read(folder, 6) == LogPiece(b"world", 11, 11)
    assert read(folder, 3, 4) == LogPiece(b"lo w", 7, 11)
    assert read(folder, -3) == LogPiece(b"rld", 11, 11)
    assert read(folder, 11) == LogPiece(b"", 11, 11)
    assert read(folder, 99) == LogPiece(b"", 99, 11)


@given(st.lists(st.integers(1, 70_000), max_size=8), st.integers(3_000, 20_000))
def test_always_the_newest_output_is_there_and_never_more_than_the_cap(sizes: list[int], limit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / OPERATION).mkdir()
        stream = a_stream(folder)
        written = grown = 0
        for size in sizes:
            piece = TEXT[written : written + size]
            grown += stream.write(memoryview(piece))
            written += len(piece)
            assert size_on_disk(folder) == grown <= CAP
        chunk = read(folder)
        assert chunk.data == TEXT[begin(chunk) : written]
        assert chunk.size == written
        assert len(chunk.data) >= min(written, HALF)
        assert follow(folder, limit) == chunk.data
        stream.close()


def follow(folder: Path, limit: int) -> bytes:
    data, offset = b"", 0
    while (chunk := read(folder, offset, limit)).data:
        data += chunk.data
        offset = chunk.next_offset
    return data


def test_a_reader_who_comes_at_any_moment_of_a_rotation_sees_true_offsets(folder: Path) -> None:
    looks = 0

    def look() -> None:
        nonlocal looks
        chunk = read(folder)
        assert chunk.data == TEXT[begin(chunk) : begin(chunk) + len(chunk.data)]
        assert chunk.next_offset == chunk.size
        looks += 1

    stream = a_stream(folder, WatchedFiles(look))
    for start in range(0, 5 * HALF, 10_000):
        stream.write(memoryview(TEXT[start : start + 10_000]))
    stream.close()

    assert looks > 30


def test_a_rotation_while_the_reader_opens_the_files_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(folder)
    stream.write(memoryview(TEXT[:CAP]))
    written = CAP
    place = reader._place

    def rotate_first(*arguments: Any) -> tuple[int, int]:
        nonlocal written
        if written < 2 * CAP:
            stream.write(memoryview(TEXT[written : written + HALF]))
            written += HALF
        return place(*arguments)

    monkeypatch.setattr(reader, "_place", rotate_first)
    chunk = read(folder)
    stream.close()

    assert chunk.data == TEXT[begin(chunk) : written]
    assert chunk.size == written == 2 * CAP


@pytest.mark.parametrize("calls", range(3, 33))
def test_a_reader_sees_true_offsets_wherever_the_runner_was_killed(folder: Path, calls: int) -> None:
    stream = a_stream(folder, MortalFiles(calls))
    with contextlib.suppress(PowerCut):
        for start in range(0, 5 * HALF, 10_000):
            stream.write(memoryview(TEXT[start : start + 10_000]))
    stream.close()
    chunk = read(folder)

    assert chunk.data == TEXT[begin(chunk) : chunk.size]
    assert not chunk.size or chunk.data


def test_a_disk_that_takes_little_at_a_time_gets_everything(folder: Path) -> None:
    stream = a_stream(folder, ShortWritingFiles(777))
    stream.write(memoryview(TEXT[:100_000]))
    stream.close()
    chunk = read(folder)

    assert chunk.data == TEXT[begin(chunk) : 100_000]


def test_a_log_that_is_a_link_is_neither_written_nor_read(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder / OPERATION / "0.1.stdout").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        read(folder)
    a_stream(folder).write(memoryview(b"x"))

    assert secret.read_text() == "secret"
    assert read(folder).data == b"x"


def test_a_folder_that_is_a_link_is_not_read(folder: Path) -> None:
    (folder / "op-elsewhere").symlink_to(folder / OPERATION)

    with pytest.raises(OSError, match=r"directory|symbolic"):
        read_log(str(folder), a_job(operation="op-elsewhere"), "stdout")


@pytest.mark.parametrize("operation", ["../secrets", "..", "/etc/x", "", "a" * 65, "op-1234\n5678", "Op-12345678"])
def test_only_an_operations_id_names_a_folder(folder: Path, operation: str) -> None:
    with pytest.raises(BadInput):
        read_log(str(folder), a_job(operation=operation), "stdout")
    with pytest.raises(BadInput):
        newest_attempt(str(folder), operation, 0)


@pytest.mark.parametrize(("index", "attempt", "stream"), [(-1, 1, "stdout"), (0, 0, "stdout"), (0, 1, "../x")])
def test_only_numbers_and_streams_name_a_file(folder: Path, index: int, attempt: int, stream: str) -> None:
    with pytest.raises(BadInput):
        read_log(str(folder), JobKey(OPERATION, index, attempt), stream)  # type: ignore[arg-type]


def test_the_newest_attempt_is_the_highest_that_wrote_anything(folder: Path) -> None:
    assert newest_attempt(str(folder), OPERATION, 0) is None
    for name in ("0.9.stdout", "0.10.stderr", "0.11.stdout.1", "1.12.stdout", "00.13.stdout"):
        (folder / OPERATION / name).touch()

    assert newest_attempt(str(folder), OPERATION, 0) == 10
    assert newest_attempt(str(folder), "op-nowhere1", 0) is None


def test_a_job_that_ran_before_under_the_same_name_leaves_nothing_in_the_new_log(folder: Path) -> None:
    first = a_stream(folder)
    first.write(memoryview(TEXT[: CAP + HALF + 5]))
    first.close()
    second = a_stream(folder)
    second.write(memoryview(b"new"))
    second.close()

    assert read(folder) == LogPiece(b"new", 3, 3)


def test_what_cannot_be_written_names_path_and_error(tmp_path: Path) -> None:
    (tmp_path / OPERATION).write_text("in the way")

    with pytest.raises(LogUnwritable, match=rf"{OPERATION}/0\.1\.stdout cannot be written: Not a directory"):
        a_stream(tmp_path).write(memoryview(b"x"))


def test_the_tail_is_the_end_of_all_pieces(folder: Path) -> None:
    stream = a_stream(folder)
    for start in range(0, 30_000, 1000):
        stream.write(memoryview(TEXT[start : start + 1000]))
    stream.close()

    assert stream.tail() == TEXT[30_000 - 2048 : 30_000].decode()
