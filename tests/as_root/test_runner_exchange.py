"""Jobs of two accounts cannot reach each other's word to the agent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.heartbeat import JobResult
from headrace_agent.host.job_exchange import JobExchange
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.protocol import Interrupt
from tests.unit.runner.builders import a_job
from tests.unit.runner.harness import ARunner, Signpost, runner, signpost

__all__ = ["runner", "signpost"]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that every account may enter, unlike those that pytest makes."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        yield Path(folder)


def test_an_account_tells_progress_in_its_own_folder_and_reaches_no_other(
    runner: ARunner, signpost: Signpost, tmp_path: Path
) -> None:
    exchange, agent = tmp_path / "exchange", runner.start()
    signpost.path.chmod(0o622)
    own = [f"{exchange}/{job_name(a_job(index))}" for index in (0, 1)]
    progress, deadline = f"{own[0]}/{job_name(a_job(0))}.progress", f"{own[0]}.deadline"
    trapped = (
        f"trap 'cat {deadline} > /dev/stderr; exit 75' TERM; echo 1/4 > {progress}; echo there > {signpost.path}; "
    )
    common = {"working_directory": "/", "interruptible": True}
    script = trapped + "while :; do sleep 0.01; done"
    first = {"account": "nobody", "exchange_folder": own[0], "deadline_file": deadline}
    agent.run(0, "sh", "-c", script, **common, **first)
    assert signpost.line() == "there"
    attack = f"echo 0.9 > {progress}; ln -s /etc/passwd {own[0]}/x; echo 1 > {deadline}; ls {exchange}; mkdir {exchange}/junk"
    end = agent.sh(1, attack, **common, account="daemon", exchange_folder=own[1])
    look = JobExchange(str(exchange))
    agent.say(Interrupt(a_job(0), 20_000, "preempted"))

    assert end.result is JobResult.FAILED
    assert end.stderr_tail.count("ermission denied") == 5, end.stderr_tail
    assert look.read_progress(look.names(), {a_job(0): "nobody", a_job(1): "daemon"}) == {a_job(0): 250}
    saved = agent.end_of(0)
    assert (saved.exit_code, saved.result) == (75, JobResult.ABORTED)
    assert float(runner.log(0, "stderr").split()[-1]) > 1e9
    assert {path.name for path in exchange.iterdir()} >= {Path(folder).name for folder in own}


def test_a_job_does_not_start_where_the_exchange_folder_belongs_to_another_account(
    runner: ARunner, tmp_path: Path
) -> None:
    (tmp_path / "exchange").mkdir()
    os.chown(tmp_path / "exchange", 65534, 65534)
    end = runner.start().sh(
        0, "true", account="nobody", working_directory="/", exchange_folder=f"{tmp_path}/exchange/{job_name(a_job(0))}"
    )

    assert end.result is JobResult.ABORTED
    assert f"{tmp_path}/exchange cannot be written: it belongs to uid 65534, but must belong to uid 0" in end.reason
