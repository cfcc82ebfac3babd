"""The cluster of Dask, and the operations of its workers."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

import anyio
from distributed import Scheduler, Security
from distributed.deploy.spec import ProcessInterface, SpecCluster

from headrace import client as asynchronous
from headrace.client import JobOptions, operation_spec
from headrace.client.blocking import Client

#: Hundredths of a core in a core.
_CORE: Final = 100
#: Seconds for which a worker looks for its scheduler before it ends.
_DEATH_TIMEOUT_S: Final = 60
#: Seconds for which the cluster waits for the end of a worker before the scheduler goes on.
_CLOSING_S: Final = 3.0
#: Environment variables of Dask for the TLS settings of a worker, by the names that `Security.get_tls_config_for_role` gives the settings.
_TLS_VARIABLES: Final = {
    "ca_file": "DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
    "cert": "DASK_DISTRIBUTED__COMM__TLS__WORKER__CERT",
    "key": "DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY",
}


class _Worker(ProcessInterface):  # type: ignore[misc]
    """The operation of one worker."""

    def __init__(
        self, scheduler: str, *, name: str, client: Client, command: Sequence[str], options: JobOptions
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self._client = client
        self._argv = [*command[:3], scheduler, "--name", str(name), *command[3:]]
        self._options = options
        self._operation: asynchronous.Operation | None = None

    async def start(self) -> None:
        async def run(client: asynchronous.Client) -> asynchronous.Operation:
            return await client.run(self._argv, **self._options)

        self._operation = await asyncio.wrap_future(self._client.in_background(run))
        await super().start()

    async def close(self) -> None:
        started = self._operation
        if started is not None:
            self._operation = None

            async def end(_: asynchronous.Client) -> None:
                await started.abort("the Dask cluster closed the worker")
                # The scheduler must not close before the worker has ended: a worker whose scheduler closes at the same time does not react
                # to its SIGTERM, and is killed only after ten seconds.
                with anyio.move_on_after(_CLOSING_S):
                    await started.wait()

            await asyncio.wrap_future(self._client.in_background(end))
        await super().close()


class HeadraceCluster(SpecCluster):  # type: ignore[misc]
    """A cluster of `dask.distributed` with the methods of all Dask clusters: `scale`, `adapt`, `close`, `get_logs` and so on.

    `cpu`, `memory`, `gpu`, `pool` and the other options of `Client.run` apply to each worker. The options that set the number of jobs
    do not exist here.
    A worker has as many threads as whole cores, at least one. `close` aborts the operations of all workers.
    """

    def __init__(
        self,
        *,
        n_workers: int = 0,
        client: Client | None = None,
        python: str = sys.executable,
        worker_options: Sequence[str] = (),
        scheduler_options: Mapping[str, Any] | None = None,
        asynchronous: bool = False,
        **options: Unpack[JobOptions],
    ) -> None:
        """A key is made for each cluster. Its scheduler, workers and clients use the key to recognize each other and to
        encrypt.

        The key reaches the workers in the environment of their operations. Only the owner of the operations and people who may manage the
        pool can read this environment.

        `client` defaults to `headrace.Client()`. `python` is the interpreter on the nodes, and `worker_options` are further arguments of
        `dask worker`. `scheduler_options` are arguments of `distributed.Scheduler`, such as `host` and `dashboard_address`.

        Raises `BadInput` and the errors of `Client`.
        """
        # A program that can connect to a scheduler or to a worker can run code there, so every connection needs this key.
        security = Security.temporary()
        environment = {**_tls_variables(security), **(options.get("environment") or {})}
        wanted: JobOptions = {"title": "Dask worker", **options, "environment": environment}
        command = _worker_command(python, wanted, worker_options)
        self._client = Client() if client is None else client
        self._owns_client = client is None
        worker = {
            "cls": _Worker,
            "options": {
                "client": self._client,
                "command": command,
                "options": wanted,
            },
        }
        scheduler = {
            "cls": Scheduler,
            "options": {"dashboard_address": "127.0.0.1:0", **(scheduler_options or {}), "security": security},
        }
        try:
            super().__init__(
                scheduler=scheduler,
                worker=worker,
                security=security,
                asynchronous=asynchronous,
                name="headrace",
                silence_logs=logging.WARNING,
            )
            self.scale(n_workers)
        except BaseException:
            self._close_client()
            raise

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            await asyncio.to_thread(self._close_client)

    def _close_client(self) -> None:
        if self._owns_client:
            self._client.close()


def _tls_variables(security: Security) -> dict[str, str]:
    """Return the environment variables that make a worker use the key of the cluster and refuse unencrypted connections."""
    of_worker = security.get_tls_config_for_role("worker")
    variables = {variable: of_worker[name] for name, variable in _TLS_VARIABLES.items()}
    return {**variables, "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}


def _worker_command(python: str, options: JobOptions, further: Sequence[str]) -> list[str]:
    """Return the command of a worker, without the address of its scheduler and its name. Raises `BadInput`."""
    size = operation_spec(["true"], **options).resources
    words = ["--nthreads", str(max(1, size.cpu // _CORE)), "--memory-limit", str(size.memory or "auto")]
    words += ["--no-nanny", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    words += ["--death-timeout", str(_DEATH_TIMEOUT_S)]
    return [python, "-m", "distributed.cli.dask_worker", *words, *further]
