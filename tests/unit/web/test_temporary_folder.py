"""Folders of processes that were killed are removed by the next process, and all other folders stay."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from headrace_web.temporary_folder import temporary_folder


def aged(path: Path, mode: int = 0o700) -> Path:
    """A folder that was made long ago."""
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    os.utime(path, (1_000, 1_000))
    return path


def test_only_what_a_killed_process_left_behind_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "web-left"
    left.mkdir()
    (left / "secrets.json").write_text("{}")
    aged(left)
    stays = [aged(tmp_path / "other"), aged(tmp_path / "web-of-others", 0o755), tmp_path / "web-link"]
    stays[2].symlink_to(stays[0])
    (stays[0] / "file").touch()
    (tmp_path / "web-new").mkdir(mode=0o700)

    with temporary_folder("web-") as first:
        assert first.stat().st_mode & 0o777 == 0o700
        assert not left.exists()
        aged(first)
        with temporary_folder("web-") as second:
            # The first process lives.
            assert first.exists()
        assert not second.exists()

    assert {path.name for path in tmp_path.iterdir()} == {"other", "web-of-others", "web-link", "web-new"}
    assert (stays[0] / "file").exists()
