"""`headrace agent selftest` of an agent that is root: each account of jobs is tried."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_selftest import selftest


@pytest.fixture
def credential() -> Iterator[Path]:
    """A file in a folder that everybody may enter, as those of tests are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "credential")
        file.write_text("user:password")
        yield file


def test_accounts_of_jobs_are_tried_one_by_one(tmp_path: Path, credential: Path) -> None:
    settings = {"users": "anna=nobody,ben=no-such-account", "credential_file": str(credential)}
    credential.chmod(0o600)
    status, lines = selftest(tmp_path, **settings)

    assert status == 1
    assert "ok      account nobody: jobs run as it, and cannot read the agent's credential" in lines
    assert "FAILED  account no-such-account: not started: this host has no account no-such-account" in lines
    credential.chmod(0o644)
    _, lines = selftest(tmp_path, **settings)
    assert any(line.startswith(f"FAILED  account nobody: it can read {credential}") for line in lines)


def test_root_without_accounts_is_told_that_no_job_starts(tmp_path: Path) -> None:
    status, lines = selftest(tmp_path)

    assert status == 1
    assert any(line.startswith("FAILED  accounts: no job starts") for line in lines)
