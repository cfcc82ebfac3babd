"""Folders of logs, and the one that is there beforehand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace_agent.runner.files.job_log import LogUnwritable
from headrace_agent.runner.files.log_folders import SPARE, LogFolders
from headrace_agent.runner.files.log_retention import Retention
from headrace_agent.runner.host.files import LinuxFiles


def test_the_spare_folder_becomes_that_of_the_next_operation(tmp_path: Path) -> None:
    folders = LogFolders(LinuxFiles(), str(tmp_path))
    folders.make_spare()
    spare = (tmp_path / SPARE).stat()

    folders.open("one")
    folders.open("two")

    assert (tmp_path / "one").stat().st_ino == spare.st_ino
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o700}


def test_a_folder_with_logs_is_left_as_it_is(tmp_path: Path) -> None:
    folders = LogFolders(LinuxFiles(), str(tmp_path))
    folders.open("one")
    (tmp_path / "one" / "0.1.stdout").write_text("words")
    folders.make_spare()

    folders.open("one")

    assert (tmp_path / "one" / "0.1.stdout").read_text() == "words"


def test_a_spare_folder_that_is_gone_or_holds_something_is_not_used(tmp_path: Path) -> None:
    folders = LogFolders(LinuxFiles(), str(tmp_path))
    folders.make_spare()
    (tmp_path / SPARE).rmdir()
    folders.open("one")
    (tmp_path / SPARE).mkdir()
    (tmp_path / SPARE / "strange").touch()
    folders.make_spare()
    folders.open("two")

    assert os.listdir(tmp_path / "one") == os.listdir(tmp_path / "two") == []


def test_without_a_folder_for_logs_the_reason_comes_with_the_start(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    folders = LogFolders(LinuxFiles(), f"{tmp_path}/logs")
    folders.make_spare()

    with pytest.raises(LogUnwritable, match="Not a directory"):
        folders.open("one")


def test_a_spare_folder_of_a_former_runner_is_nobodys_logs(tmp_path: Path) -> None:
    files = LinuxFiles()
    LogFolders(files, str(tmp_path)).make_spare()
    LogFolders(files, str(tmp_path)).make_spare()
    retention = Retention(1_000)

    retention.survey(files, str(tmp_path))

    assert not retention.holds(SPARE)
