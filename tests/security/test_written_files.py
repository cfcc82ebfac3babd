"""Commands that write a file harm no other file: not one to which a foreign link leads, and not one that was named by mistake."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from headrace.client.finished import FinishedOperation
from headrace.errors import BadInput
from headrace.files.durable import replace_durably
from headrace_cli.commands.pools.volume.chart_file import write_figure
from headrace_cli.export.line_file import open_lines
from headrace_cli.export.tables import csv_table
from headrace_simulator.workload_files import JobsFile


def _csv(path: Path) -> None:
    with csv_table(path):
        pass


def _jobs(path: Path) -> None:
    with JobsFile(path) as file:
        file.copy(io.StringIO("line"))


def _figure(path: Path) -> None:
    write_figure(SimpleNamespace(savefig=lambda data, **_: data.write(b"picture")), path)  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [_csv, _jobs, _figure, lambda path: replace_durably(path, "text")])
def test_nothing_is_written_through_a_link_in_the_place_of_an_unfinished_file(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    precious, target = tmp_path / "precious", tmp_path / "shared" / "table.svg"
    precious.write_text("kept")
    target.parent.mkdir()
    for suffix in ("new", "part"):
        target.with_name(f"{target.name}.{suffix}").symlink_to(precious)

    write(target)

    assert precious.read_text() == "kept"
    assert target.is_file()
    assert not target.is_symlink()


@pytest.mark.parametrize("content", ['{"key": "without a line end"}', "first\nlast", "text", '{"a": 1}\n', "\n\n"])
def test_export_leaves_a_file_with_other_content_as_it_was(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file"
    file.write_text(content)

    with pytest.raises(BadInput, match="that `headrace export operations` wrote"), open_lines(file):
        pass

    assert file.read_text() == content


@pytest.mark.parametrize("cut", [0, 1, 14, 30])
def test_export_still_removes_a_line_of_its_own_that_was_cut(tmp_path: Path, cut: int) -> None:
    fields = {field.name: 0 if field.type is int else "" for field in msgspec.structs.fields(FinishedOperation)}
    line = msgspec.json.encode(FinishedOperation(**(fields | {"position": "3.4.1"})))  # type: ignore[arg-type]
    file = tmp_path / "file"
    file.write_bytes(line + b"\n" + line[:cut])

    with open_lines(file) as lines:
        assert str(lines.position) == "3.4.1"

    assert file.read_bytes() == line + b"\n"
    file.write_bytes(line[:cut])
    with open_lines(file):
        assert file.read_bytes() == b""
