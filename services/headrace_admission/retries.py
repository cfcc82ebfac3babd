"""Failed jobs are retried as soon as their back-off is over."""

from __future__ import annotations

from typing import Any, Final

import anyio

from headrace.runtime.shell import Shell
from headrace_admission.decisions.ends_and_retries import RetriesDue
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.checkpointing import Checkpointing
from headrace_admission.log.recorder import Recorder

#: Seconds between two looks: a job may wait this much longer than its back-off.
_LOOK_S: Final = 0.25


async def retry_jobs(
    engine: AdmissionEngine, shell: Shell[Any], recorder: Recorder, checkpointing: Checkpointing
) -> None:
    """Retry failed jobs when their back-off is over, until cancelled."""
    while True:
        await anyio.sleep(_LOOK_S)
        if engine.state.pausing:
            await checkpointing.until_open()
            recorder.note(engine.on_report(RetriesDue(), shell.moment()).effects)
