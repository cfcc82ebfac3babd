"""Makes the orders by which the runner starts and interrupts jobs. Each order carries a note for a later agent process."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.resources import Resources
from headrace.wire.codec import UNREADABLE
from headrace.wire.heartbeat import JobKey, JobSpec
from headrace_agent.allocations.allocation import Allocation
from headrace_agent.container_command import CannotContain, JobInImage, in_container
from headrace_agent.effects import Identity
from headrace_agent.files.operation_files import FilesFailure, FilesFault
from headrace_agent.host.environment import (
    DEADLINE,
    PROGRESS,
    exchange_file,
    exchange_folder,
    job_environment,
    with_exchange,
    without_account,
)
from headrace_agent.job_command import job_argv, spec_of_job, with_files
from headrace_agent.runner.protocol import NO_ACCOUNT, Interrupt, Run


class AdoptionNote(msgspec.Struct, frozen=True):
    """Facts that the runner keeps with a job, so that a later agent process can adopt the job."""

    resources: Resources
    spec: JobSpec
    #: Names of the GPU devices of the job. A runner that is older than the agent keeps these names only in this note.
    gpus: tuple[str, ...] = ()


#: The progress file of a job whose progress the agent cannot read. What the job writes there is dropped.
_NOWHERE: Final = "/dev/null"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AdoptionNote)


def run_order(
    identity: Identity,
    allocation: Allocation,
    key: JobKey,
    of_all: JobSpec,
    files: str,
    failure: FilesFailure | None,
    *,
    makes_folders: bool = True,
) -> Run:
    """Return the order that starts a job of an allocation. `of_all` is the spec of all jobs of the operation.

    `files` is the folder of the operation's files; `failure` says why they could not be fetched, if that failed. If `makes_folders` is
    False, the runner is older than the agent and makes no folders for progress files: the progress of jobs with an account is then dropped.
    """
    spec = spec_of_job(of_all, key)
    account, exchange = identity.accounts.account_of(spec.user), identity.exchange_folder
    own_folder = exchange_folder(exchange, key) if exchange and account not in ("", NO_ACCOUNT) else ""
    progress_file = exchange_file(own_folder or exchange, key, PROGRESS) if exchange else ""
    if own_folder and not makes_folders:
        own_folder, progress_file = "", _NOWHERE
    deadline_file = exchange_file(exchange, key, DEADLINE) if exchange and spec.interruptible else ""
    own = job_environment(spec, key, allocation.id, identity.node, files)
    own = with_exchange(own | identity.gpus.environment(allocation.gpus), progress_file, deadline_file)
    argv, container, why_not = spec.argv, None, failure.why if failure is not None else ""
    try:
        argv = job_argv(spec, key)
        if spec.image:
            inside = in_container(identity.containers, _in_image(identity, allocation, spec, argv, own, files))
            argv, own, container = inside.argv, inside.environment, inside.container
    except (BadInput, CannotContain) as error:
        why_not = why_not or str(error)
    return Run(
        job=key,
        allocation=allocation.id,
        argv=with_files(spec, key, argv),
        environment={**(without_account(identity.environment) if account else identity.environment), **own},
        working_directory=spec.working_directory or files,
        cpu=allocation.resources.cpu,
        memory_bytes=allocation.resources.memory,
        log_cap_bytes=min(spec.log_cap_bytes, identity.largest_log_cap_bytes),
        start=allocation.start,
        note=_encoder.encode(AdoptionNote(allocation.resources, of_all, allocation.gpus)),
        interruptible=spec.interruptible,
        interrupt_signal=spec.interrupt_signal,
        deadline_file=deadline_file,
        exchange_folder=own_folder,
        account=account,
        lowest_uid=identity.accounts.lowest_uid_of(spec.user),
        not_started_for=why_not,
        is_host_fault=failure is not None and failure.fault is FilesFault.HOST,
        gpus=allocation.gpus,
        closed_files=identity.gpus.files_of_others(allocation.gpus),
        time_limit_ms=spec.time_limit_ms,
        interruption_timeout_ms=spec.interruption_timeout_ms,
        terminal=spec.terminal,
        container=container,
        operation_started_at_ms=spec.started_at_ms,
        user=spec.user,
    )


def _in_image(
    identity: Identity, allocation: Allocation, spec: JobSpec, argv: list[str], environment: dict[str, str], files: str
) -> JobInImage:
    return JobInImage(
        spec.image,
        argv,
        environment,
        folder=spec.working_directory or files,
        folders=(files, identity.exchange_folder),
        devices=identity.gpus.devices(allocation.gpus),
        is_root=identity.is_root and not identity.accounts.account_of(spec.user),
    )


def interrupt_order(key: JobKey, allocation: Allocation, timeout_ms: int, reason: str) -> Interrupt:
    """Return the order that interrupts the job of an allocation. Its note carries the record of the preemption, if there is one."""
    return Interrupt(key, timeout_ms, reason, _encoder.encode(allocation.preemption))


def note_in(run: Run) -> AdoptionNote | None:
    """Return the note in an order, or None if it cannot be read."""
    try:
        return _decoder.decode(run.note)
    except UNREADABLE:
        return None
