"""Start and stop of a service's process, the same for all services.

Exit status: 0 stopped as asked; 2 bad settings; 3 the bus is out of reach or was closed for good; 4 a higher term is known
(another process has taken over); 1 any other error. A supervisor restarts the process after 3, 4 and 1.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import anyio
import anyio.abc
import msgspec

from headrace import __version__
from headrace.access.key_credential import KeyCredential
from headrace.bus import Bus, BusClosed, BusError, Credential, ServiceInfo, connect
from headrace.bus.credential_files import read_credential
from headrace.bus.nats.bus import NatsBus
from headrace.bus.stores import ReplicaWatch, needed_streams, until_there
from headrace.errors import BadInput, HeadraceError
from headrace.files.standard_streams import open_streams
from headrace.ids import tree_name
from headrace.installation.extras import MissingExtra, require
from headrace.installation.systems import require_linux_in_process
from headrace.obs import tracing
from headrace.obs.logging import configure, logger
from headrace.obs.trace_sinks import begin_tracing, with_otel_variables
from headrace.own_process import share_one_arena
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.concurrent_calls import cancel_when
from headrace.runtime.endpoints import Endpoints, UserQuota
from headrace.runtime.metrics import Metrics
from headrace.runtime.presence import Presence
from headrace.runtime.readiness import Readiness
from headrace.runtime.role import Deposed, Deposition, Role, lead
from headrace.runtime.settings import CommonSettings, load
from headrace.runtime.terms import TermBook
from headrace.systemd.notifier import Notifier, notifier_of
from headrace.wire import subjects
from headrace.wire.version import Term

S = TypeVar("S", bound=CommonSettings)

#: Switch interval of threads in seconds: the time after which a thread that computes lets the event loop run. Compared with
#: Python's default, this value lowers the 99th percentile of the time to an answer from 13.5 to 2.9 ms.
_SWITCH_INTERVAL_S = 0.0005
#: Thresholds of Python's garbage collector, which looks for cycles of objects. Services hold very many objects that are in no
#: cycle: at 10,000 operations a collection of all objects blocked the loop for 80 ms. So all objects are examined only once in
#: 200 million allocations, and only new objects are examined often. The first threshold must be small: it counts allocations
#: minus deallocations, so many more new objects than its value may exist when it is reached. With a threshold of 5,000, one
#: collection examined 250,000 objects and took 230 ms.
COLLECTOR_THRESHOLDS = (1_000, 50, 4_000)


class Runtime(msgspec.Struct, Generic[S], frozen=True):
    """The bus, clock, settings, terms and other parts that every service's shell uses."""

    name: str
    settings: S
    bus: Bus
    #: Connection for requests of users; `bus` if there is no separate connection.
    users: Bus
    #: Connection for requests of nodes and of hosts that join; `bus` if there is no separate connection.
    nodes: Bus
    #: Connection for publications that any number of persons may subscribe to; `bus` if there is no separate connection.
    news: Bus
    clock: Clock
    endpoints: Endpoints
    terms: TermBook
    deposition: Deposition
    presence: Presence
    metrics: Metrics
    readiness: Readiness
    #: Task group for tasks that live as long as the service.
    tasks: anyio.abc.TaskGroup
    #: Set when the process was asked to stop.
    stopping: anyio.Event

    async def lead(
        self,
        role: str,
        serve: Callable[[Role], Awaitable[None]],
        *,
        recorded: Callable[[], Awaitable[Term]] | None = None,
        sequence: Callable[[], int] | None = None,
        follow: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Stand by until the role is free, then run `serve` with the role. Raises `BusError` if the role's term cannot be taken.

        `recorded` returns the highest term in the data that the service has written. `follow` runs while another process leads,
        and ends before `serve` begins. `sequence` returns the number of the last log entry that this process has read, for
        `service list`.
        """

        async def serve_visibly(held: Role) -> None:
            self.presence.lead(held)
            self.readiness.works(f"begins to lead {role} in term {held.term}")
            self.endpoints.leads = held
            await serve(held)
            # When this function returns, `lead` stops serving requests on `bus`. On the separate connections for users and nodes
            # serving is stopped here, so that the next leader is the only process that answers.
            for each in dict.fromkeys((self.users, self.nodes)):
                if each is not self.bus:
                    await each.stop_serving()

        await self.presence.stand_by(role, self.endpoints, sequence)
        self.readiness.waits(f"stands by to lead {role}")
        await lead(
            self.bus,
            self.terms,
            self.deposition,
            role,
            serve_visibly,
            instance=self.settings.instance_name,
            stopping=self.stopping,
            recorded=recorded,
            follow=follow,
            lease_s=self.settings.lease_ms / 1000,
            has_standby=self.settings.has_standby,
        )


def runtime_on(
    bus: Bus,
    name: str,
    settings: S,
    tasks: anyio.abc.TaskGroup,
    stopping: anyio.Event,
    clock: Clock | None = None,
    *,
    users: Bus | None = None,
    nodes: Bus | None = None,
    news: Bus | None = None,
    readiness: Readiness | None = None,
) -> Runtime[S]:
    """Build the `Runtime` of a service. The caller must run `deposition.watch` and serve the terms."""
    clock = clock or SystemClock()
    deposition = Deposition()
    return Runtime(
        name=name,
        settings=settings,
        bus=bus,
        users=users or bus,
        nodes=nodes or bus,
        news=news or bus,
        clock=clock,
        endpoints=Endpoints(
            bus,
            clock,
            deposition,
            users=users,
            nodes=nodes,
            quota=UserQuota(settings.most_waiting_of_a_user, settings.most_waiting_bytes_of_a_user),
        ),
        terms=TermBook(name),
        deposition=deposition,
        presence=Presence(bus, name, settings.instance_name, clock),
        metrics=Metrics(bus, _labels(name, settings)),
        readiness=readiness or Readiness(),
        tasks=tasks,
        stopping=stopping,
    )


def run_service(
    name: str,
    kind: type[S],
    serve: Callable[[Runtime[S]], Awaitable[None]],
    *,
    inbox: Callable[[S], str] | None = None,
) -> NoReturn:
    """Run a service: read its settings, connect, and run `serve` until it returns. Exits with the status that the module
    describes.

    `serve` must watch `runtime.stopping` and, when it is set, complete the work in progress and return. Pass `inbox` for a
    process that is no service, such as an agent: a function that returns the prefix of the process's inboxes, which for an agent
    is the prefix of its node.
    """
    open_streams()
    parser = argparse.ArgumentParser(prog=f"headrace-{name.replace('_', '-')}", description=kind.__doc__)
    parser.add_argument("--config", type=Path, help="settings file (TOML)")
    arguments = parser.parse_args()
    require_linux_in_process(parser.prog)
    try:
        settings = load(kind, name, arguments.config, os.environ)
        configure(name, settings.log_level)
        credential = read_credential(settings.credential_file)
        _ = settings.server_urls
        if settings.metrics_port:
            require("metrics", "the setting metrics_port")
        begin_tracing(name, with_otel_variables(settings.traces, os.environ))
    except (BadInput, KeyError, MissingExtra) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(2)
    notifier = notifier_of(os.environ, os.getpid(), SystemClock().steady_s)
    share_one_arena()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    prefix = inbox(settings) if inbox else subjects.inbox("service", name.replace("_", "-"))
    status = anyio.run(_run, name, settings, credential, prefix, serve, inbox is None, notifier)
    tracing.end()
    sys.exit(status)


async def _run(
    name: str,
    settings: S,
    credential: Credential | KeyCredential | None,
    prefix: str,
    serve: Callable[[Runtime[S]], Awaitable[None]],
    is_service: bool,
    notifier: Notifier,
) -> int:
    stopping = anyio.Event()
    readiness = Readiness(notifier)
    status = 0
    about = ServiceInfo(name=f"headrace-{name.replace('_', '-')}", version=__version__, only_pinged=not is_service)
    connection = partial(_connect, settings, credential, prefix, about)
    try:
        readiness.waits(f"waits for the server at {settings.nats_url}")
        async with (
            readiness.kept_alive(),
            connection(name=f"headrace-{name}") as bus,
            # Requests of users and requests of nodes have a connection each. In a flood of requests this process may read so
            # slowly that the server closes the connection. That must not happen to the connection that carries the log and the
            # lease, and a flood of users must not cost the connection for heartbeats.
            connection(name=f"headrace-{name}-users") as users,
            connection(name=f"headrace-{name}-nodes") if is_service else nullcontext(bus) as nodes,
            # Publications for persons have a connection of their own: while the server passes such a message on to all
            # subscribers, possibly very many, it reads nothing else from the connection of the message.
            connection(name=f"headrace-{name}-news") if is_service else nullcontext(bus) as news,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_watch_signals, stopping)
            for each in (bus, users, nodes, news):
                tasks.start_soon(_watch_bus, each)
            runtime = runtime_on(
                bus, name, settings, tasks, stopping, users=users, nodes=nodes, news=news, readiness=readiness
            )
            tasks.start_soon(runtime.deposition.watch)
            if settings.metrics_port:
                await tasks.start(runtime.metrics.serve, settings.metrics_host, settings.metrics_port)
            await runtime.terms.serve(bus)
            readiness.waits("waits for buckets and streams: `headrace bus provision` makes them")
            streams = needed_streams(name, tree_name(settings.tree))
            if await _until_provisioned(bus, streams, stopping):
                replicas = ReplicaWatch(bus, streams, settings.replicas)
                runtime.presence.watches(replicas.trouble, replicas.figures)
                tasks.start_soon(replicas.keep_looking)
                readiness.works("starts")
                await serve(runtime)
            await bus.stop_serving()
            # End the tasks before the connections are closed, because a request or a new subscription of a task would fail on a
            # closed connection.
            tasks.cancel_scope.cancel()
    except* Exception as failed:
        status = _exit_status(failed)
    logger().info("service ended", status=status)
    return status


def _connect(
    settings: CommonSettings,
    credential: Credential | KeyCredential | None,
    prefix: str,
    about: ServiceInfo,
    *,
    name: str,
) -> AbstractAsyncContextManager[NatsBus]:
    """Return one connection of a service, with the name that the server shows for it."""
    return connect(
        settings.server_urls,
        name=name,
        credential=credential,
        inbox_prefix=prefix,
        connect_timeout_s=settings.connect_timeout_ms / 1000,
        ca_file=settings.ca_file,
        longest_reconnect_delay_s=settings.longest_reconnect_delay_ms / 1000,
        service=about,
        makes_stores=False,
    )


async def _until_provisioned(bus: NatsBus, streams: list[str], stopping: anyio.Event) -> bool:
    """Return False if the process was asked to stop before all the streams it needs existed."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_when, stopping, tasks.cancel_scope)
        await until_there(bus, streams)
        tasks.cancel_scope.cancel()
    return not stopping.is_set()


def _labels(name: str, settings: CommonSettings) -> dict[str, str]:
    """Return the labels of all metrics of the process. Admission has no tree label, since it serves all trees."""
    return {"service": name} if name == "admission" else {"service": name, "tree": settings.tree}


async def _watch_signals(stopping: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            logger().info("asked to stop", signal=signal.Signals(number).name)
            stopping.set()


async def _watch_bus(bus: Bus) -> None:
    await bus.wait_closed()
    raise BusClosed


def _exit_status(failed: BaseExceptionGroup[Exception]) -> int:
    errors = list(_leaves(failed))
    deposed = next((error for error in errors if isinstance(error, Deposed)), None)
    if deposed is not None:
        logger().error("deposed", error=str(deposed))
        return 4
    if all(isinstance(error, BadInput) for error in errors):
        logger().error("bad settings", error="; ".join(map(str, errors)))
        return 2
    if all(isinstance(error, BusError) for error in errors):
        logger().error("bus lost", error="; ".join(map(str, errors)))
        return 3
    if all(isinstance(error, HeadraceError) for error in errors):
        # Log the text of the error without a traceback, because the text names the cause, such as a folder that is in
        # use.
        logger().error("service cannot run", error="; ".join(map(str, errors)))
        return 1
    logger().error("service failed", exception=failed)
    return 1


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
