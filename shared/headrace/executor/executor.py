"""`headrace.Executor`: calls of functions as jobs of operations.

A thread takes all calls that were submitted meanwhile, up to a bound, and starts one operation for them. A call is pickled by cloudpickle
and sent as a file; its outcome comes back at the end of the job's stdout (`job`, `outcomes`).
"""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, Unpack

import anyio

from headrace import client as asynchronous
from headrace.archives import pack
from headrace.client.blocking import Client
from headrace.client.run_options import JobOptions
from headrace.errors import first_error
from headrace.executor import job
from headrace.executor.outcomes import FIRST_TAIL_BYTES, LONGEST_TRAILER_BYTES, JobFailed, needed_bytes, outcome_in
from headrace.installation.extras import require
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import JobRow, OperationView

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds without a further call after which the submitted calls are started as one operation.
_GATHERING_S: Final = 0.02
#: Largest number of calls of one operation, and largest number of bytes of these calls.
_MOST_CALLS: Final = 1_000
_MOST_BYTES: Final = 32 * 1024 * 1024
#: Results of runs that may have left an outcome. Without retries, a job with one of these results is not run again.
_OVER: Final = frozenset({JobResult.COMPLETED, JobResult.FAILED, JobResult.TIMED_OUT})
_CLOSED: Final = "cannot schedule new futures after shutdown"


class _Call(NamedTuple):
    future: futures.Future[Any]
    data: bytes


class Executor(futures.Executor):
    """Runs each submitted call as a job. Used as any executor of `concurrent.futures`:

        with headrace.Executor(pool="research", cpu=2, memory="1G") as executor:
            results = list(executor.map(simulate, range(1000), chunksize=10))

    Functions, arguments and results are pickled by cloudpickle, so lambdas and functions of the main module work; modules that they import
    must be there on the nodes, with the same Python. An exception of the call is raised again by `Future.result`, with the remote traceback
    as its cause. A job that ends without an outcome raises `JobFailed`. A result has at most some 12 MB, because it travels in the job's
    output. If the block ends with an exception, such as Ctrl-C, the calls that still run are aborted.
    """

    def __init__(
        self, client: Client | None = None, *, python: str = sys.executable, **options: Unpack[JobOptions]
    ) -> None:
        """`client` defaults to `headrace.Client()`. `python` is the interpreter on the nodes. `options` are those of `Client.run`.

        Raises what `Client` raises.
        """
        self._client = Client() if client is None else client
        self._work = _Work(self._client, python, options, owns_client=client is None)
        self._closing = weakref.finalize(self, self._work.close)
        self._closing.atexit = False  # `_Work` closes itself at the end of the program

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """Run a call as a job. Raises `RuntimeError` after `shutdown`. If the call cannot be pickled, its future gets the error."""
        return self._work.submit(fn, args, kwargs)

    def map(
        self, fn: Callable[..., T], *iterables: Any, timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """Yield the results of calls in order, as `concurrent.futures.Executor.map` does. Each job makes `chunksize`
        calls.

        Raises `ValueError` for a `chunksize` below 1.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize must be at least 1, not {chunksize}")
        calls = list(zip(*iterables, strict=False))
        chunks = [calls[first : first + chunksize] for first in range(0, len(calls), chunksize)]
        return _flat(super().map(_over_chunks(fn), chunks, timeout=timeout))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. With `wait`, return when all calls are over. `cancel_futures` cancels the calls that have not
        been sent yet.
        """
        self._work.close(cancel=cancel_futures)
        if wait:
            self._work.join()

    def abort(self) -> None:
        """Abort the calls that run, cancel the calls that were not sent, and take no more calls. Does not wait until the calls
        have ended.
        """
        self._work.abort()
        self._work.close(cancel=True)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        self.shutdown(wait=True)


class _Work:
    """The calls of one executor. They go on until the last call is over, even if the program no longer holds the executor."""

    def __init__(self, client: Client, python: str, options: JobOptions, *, owns_client: bool) -> None:
        self._client = client
        self._argv = [python, "job.py"]
        self._options: JobOptions = {"title": "calls of an executor", "tries": 1, "keep_going": True, **options}
        self._owns_client = owns_client
        #: Calls that were submitted and not sent yet. None ends the thread.
        self._waiting: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_aborted = False
        self._operations: dict[str, futures.Future[None]] = {}

    def submit(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> futures.Future[Any]:
        # cloudpickle is imported here, because the import takes longer than most commands run.
        require("executor", "headrace.Executor")
        import cloudpickle

        # A forked process has no thread that would send the calls.
        self._client.check_process()
        future: futures.Future[Any] = futures.Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError(_CLOSED)
            try:
                data = cloudpickle.dumps((function, arguments, named))
            except Exception as error:
                future.set_exception(error)
                return future
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace executor", daemon=True)
                # At its end, the program waits for its calls, before the connection of the client ends.
                self._at_exit = weakref.finalize(self._thread, self._end)
                self._thread.start()
            self._waiting.put(_Call(future, data))
        return future

    def close(self, *, cancel: bool = False) -> None:
        """Take no more calls. The thread ends when the last call is over, and closes the client of the executor."""
        with self._lock:
            if cancel:
                self._cancel_waiting()
            if not self._is_closed:
                self._is_closed = True
                self._waiting.put(None)
                if self._thread is None and self._owns_client:
                    self._client.close()

    def abort(self) -> None:
        """Abort all operations of the executor that still run, and the operation that is being started."""
        self._is_aborted = True
        for operation in list(self._operations):
            self._client.abort(operation, "the executor was left with an exception")

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _end(self) -> None:
        self.close()
        self.join()

    def _cancel_waiting(self) -> None:
        while True:
            try:
                call = self._waiting.get_nowait()
            except queue.Empty:
                return
            if call is None:
                self._waiting.put(None)
                return
            call.future.cancel()
            call.future.set_running_or_notify_cancel()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            calls, is_last = self._gathered()
            wanted = [call for call in calls if call.future.set_running_or_notify_cancel()]
            if wanted:
                self._start(wanted)
        futures.wait(list(self._operations.values()))
        if self._owns_client:
            self._client.close()
        self._at_exit.detach()

    def _gathered(self) -> tuple[list[_Call], bool]:
        """Return the calls for the next operation, and True if no further calls will come."""
        calls: list[_Call] = []
        size = 0
        while len(calls) < _MOST_CALLS and size < _MOST_BYTES:
            try:
                call = self._waiting.get(timeout=_GATHERING_S if calls else None)
            except queue.Empty:
                break
            if call is None:
                return calls, True
            calls.append(call)
            size += len(call.data)
        return calls, False

    def _start(self, calls: Sequence[_Call]) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="headrace-calls-") as folder:
                root = Path(folder)
                (root / "calls").mkdir()
                for index, call in enumerate(calls):
                    (root / "calls" / str(index)).write_bytes(call.data)
                (root / "job.py").write_bytes(Path(job.__file__).read_bytes())
                files = self._client.files.send(pack([root], place="calls"))
            environment = {job.CALLER_FOLDER: os.getcwd(), **(self._options.get("environment") or {})}
            options: JobOptions = {**self._options, "environment": environment}
            operation = self._client.run(self._argv, jobs=len(calls), files=files, **options)
        except BaseException as error:
            for call in calls:
                call.future.set_exception(error)
            return
        waited = dict(enumerate(call.future for call in calls))
        following = self._client.in_background(partial(_follow, operation.id, waited, self._options["tries"] != 1))
        self._operations[operation.id] = following
        if self._is_aborted:
            self.abort()
        following.add_done_callback(lambda _: self._operations.pop(operation.id, None))


async def _follow(
    operation: str, waited: dict[int, futures.Future[Any]], retries: bool, client: asynchronous.Client
) -> None:
    """Give the futures of an operation's jobs their outcomes as the jobs end. If `retries` is True, a failed job may be retried, so its
    failure is final only at the end of the operation.
    """
    news = anyio.Event()
    over: list[OperationView] = []

    def on_view(_: OperationView) -> None:
        news.set()

    async def wait() -> None:
        over.append(await client.wait(operation, on_view))
        news.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            while waited:
                await news.wait()
                news = anyio.Event()
                is_over = bool(over)
                async for row in client.jobs(operation):
                    index = row.slot.index
                    is_final = is_over or not retries or row.result is JobResult.COMPLETED
                    if is_final and row.result in _OVER and index in waited:
                        await _settle(client, operation, row, waited.pop(index))
                if is_over:
                    break
            tasks.cancel_scope.cancel()
        error: BaseException = JobFailed(f"operation {operation} is over: {over[0].state if over else 'unknown'}")
    except BaseException as failed:
        error = first_error(failed)
    for future in waited.values():
        future.set_exception(error)


async def _settle(client: asynchronous.Client, operation: str, row: JobRow, future: futures.Future[Any]) -> None:
    """Give a future the outcome of its job, which has ended."""
    index = row.slot.index
    try:
        tail = await _tail(client, operation, index, FIRST_TAIL_BYTES)
        size = needed_bytes(tail)
        if not size:
            words = (await _tail(client, operation, index, 2_000, stderr=True)).decode(errors="replace").strip()
            memory = ", out of memory" if row.out_of_memory else ""
            raise JobFailed(
                f"job {index} of operation {operation} ended without an outcome: {row.result}, exit code {row.exit_code}{memory}, "
                f"on node {row.node}; the end of its stderr: {words!r}"
            )
        if size > len(tail):
            tail = await _tail(client, operation, index, size)
        if len(tail) < size - LONGEST_TRAILER_BYTES:
            raise JobFailed(
                f"the pickled result has {size} bytes; the node keeps {len(tail)} bytes of the output of a job"
            )
        succeeded, value = outcome_in(tail)
    except BaseException as error:
        # A future that is waited for must get an exception even if the connection of the client ends.
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise
        return
    if succeeded:
        future.set_result(value)
    else:
        future.set_exception(value)


async def _tail(client: asynchronous.Client, operation: str, index: int, size: int, *, stderr: bool = False) -> bytes:
    lines = [line async for line in client.logs(operation, index, tail_bytes=size, stderr=stderr)]
    for line in lines:
        if line.trouble:
            raise JobFailed(f"the output of job {index} of operation {operation} cannot be read: {line.trouble}")
    return b"".join(line.raw + b"\n" * line.has_end for line in lines)


def _over_chunks(function: Callable[..., T]) -> Callable[[Sequence[Sequence[Any]]], list[T]]:
    # An inner function is pickled as code, so the nodes need not have this module.
    def run(calls: Sequence[Sequence[Any]]) -> list[T]:
        return [function(*arguments) for arguments in calls]

    return run


def _flat(chunks: Iterator[list[T]]) -> Iterator[T]:
    for chunk in chunks:
        chunk.reverse()
        while chunk:
            yield chunk.pop()
