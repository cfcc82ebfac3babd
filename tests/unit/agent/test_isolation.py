"""What the agent finds of its isolation from jobs, and what it says when the tree leaves its node out."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from headrace_agent.effects import LogRecord
from headrace_agent.host.isolation_from_jobs import isolation_of
from tests.support.agent_desk import Desk


def closed_folder(path: Path) -> Path:
    """A folder with a key that nobody else reads."""
    folder = path / "state"
    folder.mkdir(mode=0o700)
    (folder / "credential").write_text("secret")
    (folder / "credential").chmod(0o600)
    return folder


@pytest.mark.parametrize(
    ("users", "is_root", "why"),
    [
        ("", False, "the agent's own account"),
        ("same", False, "the agent's own account"),
        ("agent", True, "jobs run as root"),
        ("", True, "names no account"),
    ],
)
def test_there_is_none_where_jobs_have_no_accounts_of_their_own(
    users: str, is_root: bool, why: str, tmp_path: Path
) -> None:
    found = isolation_of(users, [str(closed_folder(tmp_path))], is_root=is_root)

    assert (found.is_full, found.word) == (False, "none")
    assert why in found.detail


@pytest.mark.parametrize("users", ["same", "ada=science", {"ada": "science"}])
def test_it_is_full_where_they_have_and_the_key_and_the_socket_are_closed_to_them(
    users: str | dict[str, str], tmp_path: Path
) -> None:
    folder = closed_folder(tmp_path)
    found = isolation_of(users, [str(folder), str(folder / "credential"), "/nowhere/yet"], is_root=True)

    assert (found.is_full, found.word) == (True, "full")


@pytest.mark.parametrize("mode", [0o710, 0o701, 0o755, 0o740])
def test_there_is_none_where_others_reach_the_folder_and_it_is_named(mode: int) -> None:
    # Not in the folder of this test, which is closed as a whole.
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        folder = closed_folder(Path(above))
        folder.chmod(mode)
        found = isolation_of("same", [str(folder)], is_root=True)

    assert (found.is_full, found.detail) == (False, f"accounts other than the agent's can reach {folder}")


def test_a_key_in_a_file_that_others_read_is_safe_in_a_folder_that_they_do_not_enter(tmp_path: Path) -> None:
    folder = closed_folder(tmp_path)
    (folder / "credential").chmod(0o644)

    assert isolation_of("same", [str(folder / "credential")], is_root=True).is_full


def test_the_agent_tells_once_why_its_node_is_left_out_and_once_that_it_is_not_any_more() -> None:
    desk = Desk()
    said = []
    for why in ("", "no tag", "no tag", "jobs run as root", ""):
        effects = desk.answer(left_out=why)
        said += [(each.event, each.fields.get("why")) for each in effects if isinstance(each, LogRecord)]
        desk.next_beat()

    assert said == [
        ("left out by the tree", "no tag"),
        ("left out by the tree", "jobs run as root"),
        ("in the tree", None),
    ]
