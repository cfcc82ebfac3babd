"""`sbatch`, and `srun` outside of a job: start an operation."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from headrace.client import Client, Operation, Refused
from headrace.errors import BadInput
from headrace.files.bounded import LARGEST_FILE_BYTES, read_bounded
from headrace.ids import TreeName
from headrace.runtime.clock import SystemClock
from headrace.wire.logs import LogStream
from headrace.wire.operations import OperationSpec, OperationState, OperationView
from headrace.wire.refusals import Exists, renamed_inputs
from headrace_cli.commands.operations.dry_run import warn_of_what_never_runs
from headrace_cli.show.screen import Screen
from headrace_cli.slurm.batch_script import (
    BatchScript,
    check_script,
    options_in_environment,
    options_in_script,
    wrapped,
)
from headrace_cli.slurm.command_line import Given, NoCounterpart
from headrace_cli.slurm.numbers import number_at, operation_of
from headrace_cli.slurm.pools_file import PoolsFile, choose, parse_pools_file
from headrace_cli.slurm.request import Submission, Submitter, option_of, submission

if TYPE_CHECKING:
    from headrace.archives import Packed

#: Variable that names the file of pools.
POOLS_FILE: Final = "HEADRACE_SLURM_POOLS"
#: The same as Slurm's.
_LARGEST_SCRIPT_BYTES: Final = 4 * 1024**2
_MOST_TRIES: Final = 100
#: If a number is taken, the next number is drawn from this many numbers after it. The count doubles each time a number is taken.
_AHEAD: Final = 4
_MOST_AHEAD: Final = 10_000


def say(command: str, words: str) -> None:
    """Print a remark as Slurm's commands do."""
    print(f"{command}: {words}", file=sys.stderr)


def pools_file(environment: Mapping[str, str]) -> PoolsFile:
    """Return the file of pools, or an empty file if there is none. Raises `BadInput`, `OSError`."""
    name = environment.get(POOLS_FILE, "")
    if not name or not Path(name).is_file():
        return PoolsFile()
    return parse_pools_file(read_bounded(name, LARGEST_FILE_BYTES, POOLS_FILE), name)


async def sbatch(client: Client, given: Given) -> int:
    """Submit a batch script and print its number. Return the exit status."""
    script, words = _script(given)
    given = given.over(options_in_environment(os.environ)).over(options_in_script(script))
    chosen = choose(given, pools_file(os.environ))
    job = submission(given, chosen, _submitter(client), script.name, words)
    _remark("sbatch", given, chosen.remarks)
    packed = _pack(script)
    if given.has("test-only"):
        with renamed_inputs(option_of):
            plan = await client.starts.plan(await _spec(client, job, 1))
        say("sbatch", f"the job would run in pool {plan.places[0].pool}")
        return 0
    await client.files.send(packed)
    number, operation = await _start(client, job, packed)
    if operation.answer is not None and operation.answer.upstream_failure:
        say("sbatch", f"warning: {operation.answer.upstream_failure}")
    if not given.has("quiet"):
        await warn_of_what_never_runs(Screen(), client, await _spec(client, job, number), operation.answer)
    print(number if given.has("parsable") else f"Submitted batch job {number}", flush=True)
    if given.has("wait"):
        return await _exit_status(operation, await operation.wait())
    return 0


async def srun(client: Client, given: Given) -> int:
    """Run a command as a job, with its output here, and return its exit status. Ctrl-C ends the job."""
    if not given.words:
        raise BadInput.because("srun", "no command is given. Name a command, such as srun --cpus-per-task=2 ./work")
    if number := given.one("jobid"):
        raise NoCounterpart(f"--jobid={number} outside of the job", f"headrace op exec slurm-{number} -- COMMAND")
    chosen = choose(given, pools_file(os.environ))
    words = given.words
    job = submission(given, chosen, _submitter(client), Path(words[0]).name, words, has_script=False)
    if job.size.tasks > 1:
        # The `srun` on the node starts the tasks of the job, as in a batch script.
        job = job._replace(
            words=["srun", f"--ntasks={job.size.tasks}", *(["--label"] if given.has("label") else []), *words]
        )
    _remark("srun", given, chosen.remarks)
    _, operation = await _start(client, job, None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_abort_on_signals, operation)
        async for line in operation.logs(follow=True, both=True):
            label = "0: " if given.has("label") and job.size.tasks == 1 else ""
            print(f"{label}{line.text}", file=sys.stderr if line.stream is LogStream.STDERR else sys.stdout, flush=True)
        view = await operation.wait()
        tasks.cancel_scope.cancel()
    return await _exit_status(operation, view)


def _script(given: Given) -> tuple[BatchScript, list[str]]:
    """Return the script and its arguments. Raises `BadInput`, `OSError`."""
    if (command := given.one("wrap")) is not None:
        if given.words:
            raise BadInput.because("--wrap", f"--wrap cannot be combined with the script {given.words[0]}")
        return wrapped(command), []
    name = given.words[0] if given.words else "/dev/stdin"
    if name == "/dev/stdin":
        script = BatchScript("sbatch", read_bounded("-", _LARGEST_SCRIPT_BYTES, "script", or_stdin=True))
    else:
        script = BatchScript(Path(name).name, read_bounded(name, _LARGEST_SCRIPT_BYTES, "script"))
    check_script(script)
    return script, given.words[1:]


def _submitter(client: Client) -> Submitter:
    # The variable keeps the links in the path, as `pwd` does.
    here = os.environ.get("PWD", "")
    folder = here if here and os.path.realpath(here) == os.getcwd() else os.getcwd()
    return Submitter(client.user, socket.gethostname(), folder, os.environ, secrets.token_hex(8))


def _pack(script: BatchScript) -> Packed:
    from headrace.archives import pack

    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        path = Path(folder) / "slurm_script"
        path.write_bytes(script.body)
        path.chmod(0o755)
        return pack([path])


def _remark(command: str, given: Given, remarks: list[str]) -> None:
    if not given.has("quiet"):
        for remark in (*given.remarks, *remarks):
            say(command, f"warning: {remark}")


async def _spec(client: Client, job: Submission, number: int) -> OperationSpec:
    """Return the spec with the tree, and with the name of the pool in place of its path."""
    spec, tree = job.spec(number), TreeName(job.chosen.tree) if job.chosen.tree else client.trees.own
    return msgspec.structs.replace(spec, tree=tree, pool=await client.pools.of(tree).at(spec.pool))


async def _start(client: Client, job: Submission, packed: Packed | None) -> tuple[int, Operation]:
    """Start the operation under a number that no other operation has. Raises what `Client.start` raises."""
    number, ahead = number_at(SystemClock().wall_ms()), _AHEAD
    for left in range(_MOST_TRIES, 0, -1):
        spec = await _spec(client, job, number)
        if packed is not None:
            spec = msgspec.structs.replace(spec, files=packed.archive)
        try:
            with renamed_inputs(option_of):
                return number, await client.start(spec, operation=operation_of(number))
        except Refused as refused:
            is_taken = isinstance(refused.refusal, Exists) and refused.refusal.what == "operation"
            if left == 1 or not is_taken:
                raise
        number += 1 + secrets.randbelow(ahead)
        ahead = min(2 * ahead, _MOST_AHEAD)
    raise AssertionError("unreachable")


async def _abort_on_signals(operation: Operation) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            say("srun", f"{signal.Signals(number).name}: the job is cancelled")
            await operation.abort(f"{signal.Signals(number).name} of srun")


async def _exit_status(operation: Operation, view: OperationView) -> int:
    """Return the largest exit status of the jobs, as `sbatch --wait` and `srun` do."""
    if view.state is OperationState.COMPLETED:
        return 0
    found = [end.status for end in view.last_failures]
    found += [row.exit_code or 0 for row in await operation.jobs()]
    return max(found, default=0) or 1
