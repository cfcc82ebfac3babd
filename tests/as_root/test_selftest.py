"""`headrace agent selftest` of an agent that is root: each account of jobs is tried."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_selftest import selftest


def test_accounts_of_jobs_are_tried_one_by_one(tmp_path: Path) -> None:
    status, lines = selftest(tmp_path, users="anna=nobody,ben=no-such-account")

    assert status == 1
    assert "ok      account nobody: jobs run as it" in lines
    assert "FAILED  account no-such-account: not started: this host has no account no-such-account" in lines


def test_root_without_accounts_is_told_that_no_job_starts(tmp_path: Path) -> None:
    status, lines = selftest(tmp_path)

    assert status == 1
    assert any(line.startswith("FAILED  accounts: no job starts") for line in lines)
