"""Folders in which an agent works: real ones of its own account, or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.ids import OperationId
from headrace_agent.files.folders import OperationFolders
from headrace_agent.host.facts import defect_of_folder
from headrace_agent.host.own_folder import ForeignFolder, make_own_folder
from headrace_agent.host.state_folder import ForeignState, claim
from headrace_agent.runner.host.files import LinuxFiles


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that is to stay as it is."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    folder.chmod(0o750)
    return folder


def as_another(monkeypatch: pytest.MonkeyPatch) -> int:
    """Has all that is there belong to another account. Returns that account's uid."""
    uid = os.geteuid() or 4_242
    lstat, fstat = os.lstat, os.fstat

    def of_another(status: os.stat_result) -> os.stat_result:
        return os.stat_result((*status[:4], uid, *status[5:]))

    monkeypatch.setattr(os, "lstat", lambda *args: of_another(lstat(*args)))
    monkeypatch.setattr(os, "fstat", lambda *args: of_another(fstat(*args)))
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    return uid


def test_a_folder_is_made_or_gets_its_rights(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    for mode in (0o711, 0o700):
        make_own_folder(str(folder), mode)
        assert folder.stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_link_or_a_file_in_its_place_is_refused(tmp_path: Path, elsewhere: Path, kind: str) -> None:
    place = tmp_path / "files"
    place.symlink_to(elsewhere) if kind == "link" else place.touch()

    with pytest.raises(ForeignFolder, match="it is a file or a symbolic link, but must be a folder"):
        make_own_folder(str(place), 0o711)
    with pytest.raises(OSError, match="must be a folder"), OperationFolders(str(place)).archive(OperationId("a" * 8)):
        pass

    assert (elsewhere.stat().st_mode & 0o7777, list(elsewhere.iterdir())) == (0o750, [])


def test_what_belongs_to_another_account_is_refused(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(elsewhere)
    uid = as_another(monkeypatch)
    said = f"it belongs to uid {uid}, but must belong to uid {uid + 1}"

    with pytest.raises(ForeignFolder, match=said):
        make_own_folder(str(elsewhere), 0o711)
    with pytest.raises(ForeignFolder, match=said):
        LinuxFiles().make_folder(str(elsewhere))
    for state in (elsewhere, link):
        with pytest.raises(ForeignState, match=f"state folder {state} cannot be used: {said}.*; nothing was changed"):
            claim(str(state), "agent")

    assert (elsewhere.stat().st_mode & 0o7777, list(elsewhere.iterdir())) == (0o750, [])


def test_a_state_folder_may_be_a_link_of_ones_own(tmp_path: Path, elsewhere: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(elsewhere)

    os.close(claim(str(link), "agent"))

    assert elsewhere.stat().st_mode & 0o7777 == 0o700


def test_a_lock_that_is_a_link_to_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    """Its content is replaced by a number."""
    precious, state = tmp_path / "precious", tmp_path / "state"
    precious.write_text("water")
    state.mkdir()
    (state / "agent.lock").hardlink_to(precious)

    with pytest.raises(ForeignState, match=r"agent\.lock is a link to a file elsewhere"):
        claim(str(state), "agent")

    assert precious.read_text() == "water"


def test_whether_a_folder_can_be_written_is_tried_on_no_file_of_others(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("water")
    (tmp_path / f".probe-{os.getpid()}").symlink_to(precious)

    assert defect_of_folder(str(tmp_path)) == ""
    assert (precious.read_text(), list(tmp_path.iterdir())) == ("water", [precious])
