"""Folders into which another account can put files: executors import nothing from them, and `slurm install` writes nothing into them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.errors import BadInput
from headrace.executor.job import is_trusted
from headrace_cli.slurm.command import install


def test_a_folder_of_another_account_below_a_folder_that_everybody_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    everybodys = tmp_path / "everybodys"
    project = everybodys / "theirs" / "project"
    project.mkdir(parents=True)
    everybodys.chmod(0o1777)
    assert is_trusted(str(project))
    assert not is_trusted(str(project / "missing"))

    if os.geteuid() == 0:
        os.chown(project.parent, 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not is_trusted(str(project))
    assert f"everybody can write to {everybodys}" in capsys.readouterr().err or os.geteuid() != 0

    everybodys.chmod(0o755)
    assert is_trusted(str(project)) is (os.geteuid() == 0)


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_that_everybody_can_write_is_not_used(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert not is_trusted(str(tmp_path))


def test_a_folder_that_everybody_can_replace_is_not_used(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    tmp_path.chmod(0o777)
    assert not is_trusted(str(project))


@pytest.mark.parametrize(("mode", "why"), [(0o777, "everybody can write"), (0o1777, "everybody can")])
def test_commands_of_slurm_are_not_written_where_other_accounts_can_replace_them(
    tmp_path: Path, mode: int, why: str
) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(BadInput, match=why):
        install(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_can_replace_the_commands_of_slurm_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o775)
    install(tmp_path)
    assert f"group {tmp_path.stat().st_gid} can write to {tmp_path}" in " ".join(capsys.readouterr().err.split())


def test_commands_of_slurm_are_not_written_through_the_folder_or_link_of_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, theirs, everybodys = tmp_path / "own", tmp_path / "theirs", tmp_path / "everybodys"
    for folder in (own, theirs, everybodys):
        folder.mkdir()
    link = everybodys / "link"
    link.symlink_to(own)
    everybodys.chmod(0o1777)
    install(link)

    if os.geteuid() == 0:
        os.chown(theirs, 12_345, -1)
        os.chown(link, 12_345, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    for folder in (theirs, link):
        with pytest.raises(BadInput, match="belongs to account"):
            install(folder)
    assert list(theirs.iterdir()) == []
