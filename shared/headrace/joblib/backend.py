"""The backend of joblib, over `headrace.Executor`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Unpack

import joblib
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

from headrace.client import JobOptions, operation_spec
from headrace.client.blocking import Client
from headrace.executor import Executor

#: Name of the backend.
BACKEND: Final = "headrace"
#: States of nodes that get jobs.
_SERVING: Final = frozenset({"online", "suspect"})


class HeadraceBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs batches of calls with `headrace.Executor`. It accepts the arguments of the executor, such as `pool`, `cpu` and `memory`."""

    supports_retrieve_callback = True
    #: -1 stands for as many jobs at a time as the nodes have resources for.
    default_n_jobs = -1
    #: Shortest and longest time in seconds that a batch should take. Each batch is one job, and a job takes some 0.2 s
    #: longer than its calls.
    MIN_IDEAL_BATCH_DURATION = 1.0
    MAX_IDEAL_BATCH_DURATION = 10.0

    def __init__(
        self,
        nesting_level: int | None = None,
        client: Client | None = None,
        python: str = sys.executable,
        **options: Unpack[JobOptions],
    ) -> None:
        super().__init__(nesting_level=nesting_level)
        self._size = operation_spec(["true"], **options).resources
        self._client = client
        self._owns_client = client is None
        self._python = python
        self._options: JobOptions = {"title": "joblib", **options}
        self._executor: Executor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many jobs run at a time. -1 stands for as many jobs as fit on the nodes of the tree at once, -2 for one job
        less, and so on.

        Raises `ValueError` if `n_jobs` is 0, and `Unanswered` if no service answers.
        """
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or n_jobs > 0:
            return n_jobs or 1
        nodes = self._opened_client().nodes().nodes
        fitting = sum(self._size.times_that_fit(node.total) for node in nodes if node.state in _SERVING)
        return max(1, fitting + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Get ready for calls, and return how many jobs run at a time."""
        self.parallel = parallel
        self._executor = Executor(self._opened_client(), python=self._python, **self._options)
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None) -> Future[Any]:
        """Run a batch of calls as a job."""
        assert self._executor is not None
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch. Raises the exception that a call raised, or `JobFailed`."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Abort all jobs."""
        if self._executor is not None:
            self._executor.abort()
        if ensure_ready:
            self.configure(parallel=self.parallel)

    def terminate(self) -> None:
        """End the executor. Close the connection too, unless it belongs to a client that the caller passed in."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        if self._owns_client and self._client is not None:
            self._client.close()
            self._client = None

    def _opened_client(self) -> Client:
        if self._client is None:
            self._client = Client()
        return self._client


def register() -> None:
    """Make `joblib.parallel_config(backend="headrace")` known."""
    joblib.register_parallel_backend(BACKEND, HeadraceBackend)
