"""An agent that is root works on files which accounts of jobs can change at any moment, and changes nothing of anybody else."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.ids import OperationId
from headrace_agent.files.folders import OperationFolders
from headrace_agent.host.own_folder import ForeignFolder
from headrace_agent.host.state_folder import ForeignState, claim
from tests.as_root.test_accounts import account
from tests.support.evil_archives import member, packed

__all__ = ["account"]

OPERATION = OperationId("operation-1")


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder such as /tmp."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


@pytest.fixture
def precious(open_to_all: Path) -> Path:
    """A folder of root's that is to stay as it is."""
    folder = open_to_all / "precious"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    return folder


def as_account(account: pwd.struct_passwd, script: str) -> None:
    subprocess.run(["sh", "-c", script], check=True, user=account.pw_uid, group=account.pw_gid, extra_groups=[])


@pytest.mark.parametrize("place", ["ln -s {precious} {here}", "mkdir -m 777 {here}"])
def test_a_folder_that_an_account_made_first_is_refused(
    open_to_all: Path, precious: Path, account: pwd.struct_passwd, place: str
) -> None:
    here = open_to_all / "headrace"
    as_account(account, place.format(precious=precious, here=here))
    before = os.lstat(here)

    with pytest.raises(ForeignFolder), OperationFolders(str(here)).archive(OPERATION):
        pass
    OperationFolders(str(here)).remove_left_over()
    with pytest.raises(ForeignState, match="it belongs to uid"):
        claim(str(here), "agent")

    # The kernel may refuse to follow the link, root too.
    made = precious if here.is_symlink() else here
    assert (precious.stat().st_mode & 0o7777, os.listdir(precious), os.listdir(made)) == (0o755, [], [])
    assert os.lstat(here).st_mode == before.st_mode


def test_unpacked_files_belong_to_the_account_and_go_with_all_that_it_did_to_them(
    open_to_all: Path, precious: Path, account: pwd.struct_passwd
) -> None:
    folders = OperationFolders(str(open_to_all / "files"))
    data = packed(
        member("a/b/words", b"water\n"), member("run", b"#!", mode=0o755), member("l", type=b"2", linkname="a")
    )
    with folders.archive(OPERATION) as path:
        Path(path).write_bytes(data)
        folders.unpack(OPERATION, path, account.pw_name)
    here = Path(folders.folder) / OPERATION

    owners = {str(each.relative_to(here)): os.lstat(each).st_uid for each in [here, *here.rglob("*")]}
    assert owners == dict.fromkeys([".", "a", "a/b", "a/b/words", "l", "run"], account.pw_uid)
    assert here.stat().st_mode & 0o7777 == 0o700
    as_account(
        account, f"cat {here}/l/b/words > {here}/copy && ln -s {precious} {here}/a/out && chmod 0 {here}/a {here}"
    )

    folders.remove(OPERATION)

    assert (os.listdir(folders.folder), os.listdir(open_to_all / "files" / ".trash")) == ([], [])
    assert precious.stat().st_mode & 0o7777 == 0o755
