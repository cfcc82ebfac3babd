"""A state folder in which another account has put something."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace_cli.up.state_folder import InUse, take_lock

_OTHER = 65_534


@pytest.mark.parametrize("name", ["lock", "nats"])
def test_a_link_of_another_account_is_not_followed(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    state = tmp_path / "state"
    state.mkdir()
    (state / name).symlink_to(precious)
    os.chown(state / name, _OTHER, _OTHER, follow_symlinks=False)

    with pytest.raises(InUse, match=f"{state / name} belongs to another user"), take_lock(state):
        pass

    assert precious.read_text() == "mine\n"


def test_nothing_is_opened_in_the_folder_of_another_account(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    state = tmp_path / "state"
    state.mkdir()
    (state / "lock").symlink_to(precious)
    os.chown(state, _OTHER, _OTHER)

    with pytest.raises(InUse, match=f"the state folder {state} belongs to another user"), take_lock(state):
        pass

    assert precious.read_text() == "mine\n"


@pytest.mark.parametrize("owner", [0, _OTHER])
def test_a_link_to_a_folder_counts_only_if_no_other_account_made_it(tmp_path: Path, owner: int) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o755)
    state = tmp_path / "state"
    state.symlink_to(precious)
    os.chown(state, owner, owner, follow_symlinks=False)

    if owner == _OTHER:
        with pytest.raises(InUse, match=f"{state} is a symbolic link of another user"), take_lock(state):
            pass
        assert (list(precious.iterdir()), precious.stat().st_mode & 0o777) == ([], 0o755)
    else:
        with take_lock(state):
            assert (precious / "lock").exists()
