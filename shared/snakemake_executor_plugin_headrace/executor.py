"""The executor: starts, watches and aborts the operations of a workflow's jobs."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from headrace.client import Refused, Unanswered
from headrace.client.blocking import Client
from headrace.errors import HeadraceError, without_control_characters
from headrace.wire.operations import FINAL_STATES, OperationState
from snakemake_executor_plugin_headrace.options import job_options

#: Folder for the output of jobs, relative to the folder of the workflow. The nodes share the folder of the workflow.
_LOGS: Final = Path(".snakemake") / "headrace_logs"
#: Largest number of a person's live operations that one check lists. Operations that are not listed are requested one by one.
_MOST_LISTED: Final = 20_000
#: Environment variables of this process that the jobs get, in addition to the variables of `envvars` in the workflow.
_COPIED: Final = ("PATH", "LANG", "LC_ALL")


class Executor(RemoteExecutor):  # type: ignore[misc]
    """Runs each job, or group of jobs, of a workflow as an operation."""

    def __post_init__(self) -> None:
        try:
            self._client = Client()
        except HeadraceError as error:
            raise WorkflowError(without_control_characters(str(error))) from None

    def run_job(self, job: Any) -> None:
        """Start the operation of a job."""
        log = (_LOGS / f"{re.sub('[^A-Za-z0-9_.-]', '_', job.name)}-{job.jobid}-{job.attempt}.log").absolute()
        copied = {name: os.environ[name] for name in _COPIED if name in os.environ}
        options = job_options(job.threads, job.resources, self.executor_settings)
        options["title"] = f"snakemake {job.name} {job.jobid}"
        options["environment"] = {**copied, **self.envvars()}
        command = ["sh", "-c", self.format_job_exec(job)]
        try:
            operation = self._client.run(command, output=str(log), error=str(log), **options)
        except HeadraceError as error:
            words = without_control_characters(str(error))
            raise WorkflowError(f"Job {job.name} was not started: {words}") from None
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=operation.id, aux={"log": log}))

    async def check_active_jobs(self, active_jobs: Sequence[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
        """Yield the jobs that are not over, and report the ends of the ended jobs. One request covers all jobs that are not over."""
        try:
            live = await asyncio.to_thread(self._live)
        except (Unanswered, Refused) as error:
            self.logger.warning(f"Headrace does not answer: {without_control_characters(str(error))}")
            live = {info.external_jobid for info in active_jobs}
        for info in active_jobs:
            if info.external_jobid in live or not await asyncio.to_thread(self._has_ended, info):
                yield info

    def cancel_jobs(self, active_jobs: Sequence[SubmittedJobInfo]) -> None:
        """Abort the operations of jobs."""
        for info in active_jobs:
            with suppress(Unanswered, Refused):
                self._client.abort(info.external_jobid, "the workflow was cancelled")

    def shutdown(self) -> None:
        """Stop watching the jobs and close the connection."""
        super().shutdown()
        self._client.close()

    def _live(self) -> set[str]:
        return {view.operation for view in self._client.list(user=self._client.user, live=True, limit=_MOST_LISTED)}

    def _has_ended(self, info: SubmittedJobInfo) -> bool:
        """Report the end of a job to Snakemake. Returns False if the job is not over."""
        try:
            view = self._client.get(info.external_jobid)
        except Unanswered:
            return False
        except Refused as error:
            self.report_job_error(info, msg=f"{without_control_characters(str(error))} ")
            return True
        if view.state not in FINAL_STATES:
            return False
        if view.state is OperationState.COMPLETED:
            self.report_job_success(info)
        else:
            reason = without_control_characters(view.reason)
            words = f"operation {view.operation} is {view.state}: {reason}. "
            self.report_job_error(info, msg=words, aux_logs=[str(info.aux["log"])])
        return True
