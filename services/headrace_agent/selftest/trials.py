"""The trials of the selftest: a separate runner starts small jobs, and their outcomes are judged."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
import psutil

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult
from headrace_agent.effects import Trouble
from headrace_agent.host import facts
from headrace_agent.host.account_mapping import AGENT, parse_accounts
from headrace_agent.runner.protocol import EndAll, Ended, FullReport, NodeLease, Run, ToAgent
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner.link import RunnerLink

_PATIENCE_S: Final = 30.0
_LEASE_NS: Final = 600 * 10**9
_LOOK_AGAIN_S: Final = 0.05
_GONE_S: Final = 5.0
_LIMIT_BYTES: Final = 64 * 2**20
#: Python code that takes more memory than the job's limit and the headroom that `rlimit` adds to this limit.
_GREED: Final = "data = bytearray(512 << 20); data[::4096] = bytes(len(data) // 4096)"
#: Python code that leaves a process in a session of its own, and prints its pid.
_LEAVER: Final = "import subprocess as s; print(s.Popen(['sleep', '600'], start_new_session=True, stdout=-3).pid)"
#: Shell code that fails unless it runs as the named account and cannot read the file. Its arguments are the name of the account and the
#: path of the file.
_AS_ACCOUNT: Final = (
    'test "$(id -un)" = "$0" || exit; test ! -f "$1" -o ! -r "$1" || { echo "it can read $1" >&2; exit 1; }'
)


class TrialResult(msgspec.Struct, frozen=True):
    """The outcome of one trial."""

    trial: str
    passed: bool
    #: What the trial found, in words.
    found: str


class Trials:
    """Runs the trials with one runner in the folder `folder`, which the caller removes afterwards."""

    def __init__(self, settings: AgentSettings, folder: str) -> None:
        self._wanted = settings
        self._folder = folder
        own = msgspec.structs.replace(settings, state_folder=folder, logs_folder="", starts_runner=True)
        self._link = RunnerLink(own, "selftest", self._on_message, self._on_trouble)
        self._picture: FullReport | None = None
        self._ends: dict[JobKey, JobEnd] = {}
        self._trouble = ""
        self._news = anyio.Event()
        self._jobs = 0

    async def run(self) -> Sequence[TrialResult]:
        """Run all trials, and return their results. If the runner does not answer, one result about the runner replaces the results
        about jobs.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._link.run)
            with anyio.move_on_after(_PATIENCE_S):
                while self._picture is None and not self._trouble:
                    await self._news.wait()
            if self._picture is None:
                verdicts = [TrialResult("runner", False, self._trouble or "it does not answer")]
            else:
                lease = NodeLease(time.clock_gettime_ns(time.CLOCK_BOOTTIME) + _LEASE_NS)
                self._link.send(lease)
                self._link.flush()
                verdicts = [self._limits(self._picture), await self._memory(), await self._leftovers()]
                verdicts += await self._accounts()
            self._link.send(EndAll(0, "the selftest is over"))
            await self._link.end(_GONE_S, with_runner=True)
            tasks.cancel_scope.cancel()
        return [self._isolation(), *verdicts, self._folders()]

    def _isolation(self) -> TrialResult:
        """Judge the isolation that the agent would report at its enrolment. The trial passes if the isolation is full, or if the
        settings do not ask for full isolation.
        """
        found, users = self._wanted.agent_isolation(), self._wanted.users
        wants_more = facts.is_root() and users != AGENT
        return TrialResult("isolation", found.is_full or not wants_more, f"{found.word}: {found.detail}")

    def _limits(self, picture: FullReport) -> TrialResult:
        wanted = "cgroup2" if self._wanted.cgroup else "rlimit"
        passed = picture.isolation in ("cgroup2", wanted)
        return TrialResult("limits", passed, f"{picture.isolation}: {picture.isolation_detail}")

    async def _memory(self) -> TrialResult:
        end = await self._job([sys.executable, "-c", _GREED], memory_bytes=_LIMIT_BYTES)
        kept = end is not None and end.result is JobResult.FAILED and not end.not_started
        found = (
            "a job that takes more memory than its limit is ended"
            if kept
            else _what_became(end, "got more memory than its limit")
        )
        return TrialResult("memory", kept, found)

    async def _leftovers(self) -> TrialResult:
        end = await self._job([sys.executable, "-c", _LEAVER])
        pid = _number_told(self._folder)
        if end is None or end.result is not JobResult.COMPLETED or not pid:
            return TrialResult("processes", False, _what_became(end, "printed nothing"))
        with anyio.move_on_after(_GONE_S):
            while psutil.pid_exists(pid):  # noqa: ASYNC110 - another process ends it
                await anyio.sleep(_LOOK_AGAIN_S)
            return TrialResult("processes", True, "processes that a job leaves behind are ended with it")
        return TrialResult("processes", False, f"process {pid} outlived its job")

    async def _accounts(self) -> list[TrialResult]:
        if not facts.is_root():
            return [TrialResult("accounts", True, "jobs run as the agent's own account")]
        if warning := self._wanted.warning_of_accounts():
            return [TrialResult("accounts", self._wanted.users == AGENT, warning)]
        accounts = sorted(set(parse_accounts(self._wanted.users).by_person.values()))
        verdicts = []
        for account in accounts:
            words = [_AS_ACCOUNT, account, facts.absolute(self._wanted.credential_file)]
            end = await self._job(["/bin/sh", "-c", *words], memory_bytes=_LIMIT_BYTES, account=account)
            passed = end is not None and end.result is JobResult.COMPLETED
            found = "jobs run as this account, and cannot read the agent's credential" if passed else _what_became(end)
            verdicts.append(TrialResult(f"account {account}", passed, found))
        return verdicts or [TrialResult("accounts", True, "each person's jobs run as the account of the same name")]

    def _folders(self) -> TrialResult:
        folders = (self._wanted.state(), self._wanted.logs())
        defects = [defect for folder in folders if (defect := facts.defect_of_folder(folder))]
        return TrialResult(
            "folders", not defects, "; ".join(defects) or "no defect is found in the folders of state and logs"
        )

    async def _job(self, argv: list[str], *, memory_bytes: int = 0, account: str = "") -> JobEnd | None:
        """Run a job and return its end, or None if it does not end in time."""
        key = JobKey(OperationId("selftest"), self._jobs, 1)
        self._jobs += 1
        path = facts.jobs_environment(self._wanted.path)
        run = Run(key, AllocationId("selftest"), argv, path, "/" if account else "", 0, memory_bytes, account=account)
        self._link.send(run)
        self._link.flush()
        with anyio.move_on_after(_PATIENCE_S):
            while key not in self._ends:
                await self._news.wait()
        return self._ends.get(key)

    def _on_message(self, message: ToAgent) -> None:
        if isinstance(message, FullReport):
            self._picture = message
        elif isinstance(message, Ended):
            self._ends[message.end.key] = message.end
        self._tell()

    def _on_trouble(self, _kind: Trouble, words: str) -> None:
        self._trouble = words
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()


async def try_host(settings: AgentSettings) -> Sequence[TrialResult]:
    """Try what an agent with these settings would do with jobs on this host. Raises `BadInput`, OSError."""
    with tempfile.TemporaryDirectory(prefix="headrace-selftest-") as folder:
        return await Trials(settings, folder).run()


def _number_told(folder: str) -> int:
    """Return the number that a job wrote to its stdout, or 0 if no job wrote a number."""
    told = [log.read_text().strip() for log in Path(folder, "logs").rglob("*stdout*")]
    return next((int(text) for text in told if text.isdigit()), 0)


def _what_became(end: JobEnd | None, otherwise: str = "") -> str:
    if end is None:
        return "its job did not end"
    return end.reason or end.stderr_tail or f"its job {end.result.value}" + (f": it {otherwise}" if otherwise else "")
