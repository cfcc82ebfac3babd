"""Calls of an executor import no module that another account of the node has put into the folder of the caller."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.executor.job import is_trusted


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
