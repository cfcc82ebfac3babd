"""The exchange folder is our own, and what lies in its place or in a job's folder leads nowhere."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from headrace.ids import OperationId
from headrace.wire.heartbeat import JobKey
from headrace_agent.host.job_exchange import JobExchange
from headrace_agent.runner.files.exchange_folders import make_job_folder, open_exchange
from headrace_agent.runner.host.accounts import Account

ME = pwd.getpwuid(os.getuid())
OURS = JobKey(OperationId("operation-1"), 3, 2)
NAME = "operation-1.3.2"


@pytest.fixture
def account() -> Account:
    """This very account: that of others takes root, and `tests/as_root` has that."""
    return Account(ME.pw_name, os.getuid(), os.getgid(), [], ME.pw_dir)


def test_a_folder_that_others_could_write_is_closed(tmp_path: Path) -> None:
    (tmp_path / "exchange").mkdir()
    (tmp_path / "exchange").chmod(0o1733)
    os.close(open_exchange(f"{tmp_path}/exchange"))

    mode = stat.S_IMODE((tmp_path / "exchange").stat().st_mode)
    assert mode == (0o711 if os.geteuid() == 0 else 0o700)


def test_a_link_in_place_of_the_folder_is_refused_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    # Whatever the umask.
    (tmp_path / "precious").chmod(0o755)
    (tmp_path / "exchange").symlink_to("precious")
    with pytest.raises(OSError, match="a symbolic link, but must be a folder"):
        JobExchange(f"{tmp_path}/exchange")

    assert stat.S_IMODE((tmp_path / "precious").stat().st_mode) == 0o755
    assert list((tmp_path / "precious").iterdir()) == []


def test_a_job_has_a_folder_for_its_account_only_and_it_goes_with_all_that_is_in_it(
    tmp_path: Path, account: Account
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    folder = tmp_path / "exchange" / NAME
    make_job_folder(str(folder), account)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / f"{NAME}.progress").write_text("1/8")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "link").symlink_to(outside)
    exchange = JobExchange(f"{tmp_path}/exchange")

    assert exchange.read_progress(exchange.names(), {OURS: ""}) == {OURS: 125}
    assert exchange.read_progress(exchange.names(), {}) == {}
    assert exchange.read_progress(exchange.names(), {}) == {}
    assert [path.name for path in (tmp_path / "exchange").rglob("*")] == [".trash"]
    assert (outside / "precious").exists()


def test_a_second_start_of_a_job_finds_nothing_of_the_first(tmp_path: Path, account: Account) -> None:
    folder = tmp_path / "exchange" / NAME
    make_job_folder(str(folder), account)
    (folder / f"{NAME}.progress").write_text("1/8")
    make_job_folder(str(folder), account)

    assert list(folder.iterdir()) == []


def test_a_link_in_place_of_the_folder_of_a_job_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / f"{NAME}.progress").write_text("1/8")
    exchange = JobExchange(f"{tmp_path}/exchange")
    (tmp_path / "exchange" / NAME).symlink_to(outside)

    assert exchange.read_progress([NAME], {OURS: ""}) == {}


def test_ten_thousand_folders_that_belong_to_no_job_go(tmp_path: Path) -> None:
    exchange = JobExchange(f"{tmp_path}/exchange")
    for number in range(10_500):
        (tmp_path / "exchange" / f"junk-{number}").mkdir()
    for _ in range(4):
        exchange.read_progress(exchange.names(), {})

    assert [path.name for path in (tmp_path / "exchange").iterdir()] == [".trash"]
