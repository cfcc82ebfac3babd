"""Everything that befalls a simulated world, one function for each kind. A seed draws some kinds and the times."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio
import msgspec

from headrace.bus import BusError
from headrace.ids import NodeName
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.nodes import ChangeNode, NodeChange, NodeRecord
from tests.simulation.bus import connect_to
from tests.simulation.people import flood
from tests.simulation.server import Faults
from tests.simulation.world import World

__all__ = [
    "FAULTS",
    "Fault",
    "a_network",
    "deafen",
    "freeze_until_succeeded",
    "heal",
    "kill_a_leader",
    "kill_an_agent",
    "lose",
    "lose_an_agent",
    "remove_machines_that_are_gone",
    "take_a_name",
]

Fault = Callable[[World], Coroutine[Any, Any, None]]

#: Buckets whose loss the design survives: what they hold is known elsewhere, or only makes a difference of seconds.
_LOSABLE: Final = (
    subjects.LEASES_BUCKET,
    subjects.TERMS_BUCKET,
    subjects.CLOCKS_BUCKET,
    subjects.VOLUMES_BUCKET,
    subjects.NODE_LEASES_BUCKET,
    subjects.POOLS_BUCKET,
    subjects.NODES_BUCKET,
)

#: Jobs that start when nothing breaks any more take no longer.
_LONGEST_HEALED_S: Final = 1.0


def a_network(world: World) -> Faults:
    """How unkind the network is of itself."""
    draw = world.random
    return Faults(
        latency_s=draw.choice(((0.0002, 0.002), (0.005, 0.05))),
        drop=draw.choice((0.0, 0.01, 0.05)),
        repeat=draw.choice((0.0, 0.02)),
        late=draw.choice((0.0, 0.01, 0.05)),
        blind=draw.choice((0.0, 0.2, 1.0)),
    )


def heal(world: World) -> None:
    """Ends what faults may have left behind."""
    world.note("healed")
    world.server.faults = Faults()
    world.server.cut.clear()
    world.server.deaf.clear()
    world.server.permissions.clear()
    # Who outlived a lease or a fault goes on as long as was asked; to wait for all that starts anew would find nothing.
    world.truth.longest_s = _LONGEST_HEALED_S
    for name in list(world._programs):
        if world.loop.is_frozen(world.process(name)):
            world.thaw(name)


def _a_service(world: World) -> str:
    return world.random.choice([name for name in world._programs if not name.startswith("agent.")])


def _a_leader(world: World, *kinds: str) -> str:
    """An allocator or admission, the one that leads where there is one."""
    names = [name for name in world._programs if name.startswith(kinds or ("allocator", "admission"))]
    shells = {name: world.shells.get(world.process(name)) for name in names}
    leading = [name for name, shell in shells.items() if shell is not None and shell._role is not None]
    return world.random.choice(leading or names)


def _a_host(world: World) -> str | None:
    """A host to break; where it hurts, mostly."""
    hosts = [name for name, host in world.hosts.items() if host.is_on]
    busy = [name for name in hosts if world.hosts[name].living]
    if busy and world.random.random() < 0.8:
        hosts = busy
    return world.random.choice(hosts) if hosts else None


async def kill_a_service(world: World) -> None:
    """SIGKILL, and the supervisor starts it again."""
    world.kill(_a_service(world))


async def freeze_a_service(world: World) -> None:
    """SIGSTOP for a while, long enough to be succeeded, or even to be cut off by the server, or not."""
    name = _a_leader(world) if world.random.random() < 0.5 else _a_service(world)
    await _freeze(world, name, world.random.choice((0.5, 2.5, 5.0, 8.0, 12.0)))


def freeze_until_succeeded(kind: str) -> Fault:
    """A leader of one kind is frozen for longer than its lease, and wakes."""

    async def freeze_a_leader(world: World) -> None:
        await _freeze(world, _a_leader(world, kind), world.random.uniform(2.5, 6.0))

    return freeze_a_leader


def kill_a_leader(kind: str) -> Fault:
    """A leader of one kind dies; its standby, or its own next life, leads then."""

    async def kill(world: World) -> None:
        world.kill(_a_leader(world, kind))
        await anyio.sleep(2.0)

    return kill


async def _freeze(world: World, name: str, seconds: float) -> None:
    process = world.process(name)
    if not world.loop.is_frozen(process):
        world.freeze(name)
        await anyio.sleep(seconds)
        if world.process(name) == process:
            world.thaw(name)


async def flap(world: World) -> None:
    """A leader is frozen until it is succeeded, and another service dies while it wakes."""
    name = _a_leader(world)
    await _freeze(world, name, 3.0)
    others = [each for each in world._programs if each.startswith("admission")]
    world.kill(world.random.choice(others))


async def kill_an_agent(world: World) -> None:
    """The agent dies; runner and jobs live on."""
    name = _a_host(world)
    if name is not None:
        world.kill(f"agent.{name}")


async def lose_an_agent(world: World) -> None:
    """The agent dies and is not started again before its node's lease is over; runner and jobs live on."""
    name = _a_host(world)
    if name is None or f"agent.{name}" in world.given_up or world.hosts[name].runner is None:
        return
    world.given_up.add(f"agent.{name}")
    world.kill(f"agent.{name}")
    await anyio.sleep(world.node_lease_s + world.random.uniform(0, 5))
    if world.hosts[name].is_on:
        world.switch_on(name)


async def freeze_an_agent(world: World) -> None:
    """SIGSTOP of an agent; runner and jobs go on."""
    name = _a_host(world)
    if name is not None and world.hosts[name].runner is not None:
        await _freeze(world, f"agent.{name}", world.random.choice((0.5, 3.0, 12.0)))


def _can_start_a_runner(world: World, name: str) -> bool:
    """True if the agent of a host runs or is started again at once."""
    # The runner ends jobs at the end of the lease, and only the agent starts a runner: with both away for so long,
    # nobody on the host can end them, and a lease promises nothing.
    agent = f"agent.{name}"
    return agent not in world.given_up and not world.loop.is_frozen(world.process(agent))


async def kill_a_runner(world: World) -> None:
    """The runner dies; its jobs live on until its successor ends them, so there is an agent that starts one."""
    name = _a_host(world)
    if name is not None and _can_start_a_runner(world, name):
        world.note(f"kill runner of {name}")
        world.hosts[name].kill_runner()


async def lose_a_host(world: World) -> None:
    """Power fails, and comes back soon, or after everything else has healed."""
    name = _a_host(world)
    if name is None:
        return
    world.note(f"{name} loses its power")
    world.switch_off(name)
    await anyio.sleep(min(world.random.choice((1.0, 8.0, 30.0)), world.length.longest_away_s))
    if name not in world.gone:
        world.note(f"{name} has its power back")
        world.switch_on(name)


async def take_a_name(world: World) -> None:
    """A second machine is given the name of a node, and is switched off once somebody has seen that."""
    name = _a_host(world)
    if name is None:
        return
    host, second = world.hosts[name], f"{name}-again"
    world.note(f"{second} says that it is {name}")
    for hosts in world.truth.hosts_of.values():
        hosts.update({second} if name in hosts else ())
    world.start_host(second, host.cores, host.tree, host.tags, node=name)
    await anyio.sleep(world.random.choice((2.0, world.node_lease_s + 6.0)))
    world.note(f"{second} is switched off")
    world.switch_off(second)
    world.gone[second] = name


async def remove_machines_that_are_gone(world: World) -> None:
    """An administrator gives up machines that never come back: operations may wait for them, and another may have the name."""
    while True:
        await anyio.sleep(1.0)
        for machine, node in world.gone.items():
            try:
                async with connect_to(world.server, "administrator", subjects.inbox("user", "anna")) as bus:
                    entry = await (await bus.key_value(subjects.NODES_BUCKET)).get(node)
                    if entry is not None and msgspec.json.decode(entry.value, type=NodeRecord).machine == machine:
                        change = ChangeNode(NodeName(node), NodeChange.REMOVE)
                        await bus.request(subjects.user("anna", "node.change"), encode(change), timeout_s=3.0)
            except* BusError:
                world.note(f"{machine} is not given up yet")


async def fill_a_disk(world: World) -> None:
    """Nothing can be started on a host for a while."""
    name = _a_host(world)
    if name is None:
        return
    world.note(f"{name} can start nothing")
    world.hosts[name].fault = "not started: no space left on device"
    await anyio.sleep(world.random.choice((0.5, 4.0, 12.0)))
    world.hosts[name].fault = ""


async def drain_a_node(world: World) -> None:
    """An administrator drains a node, and opens it again."""
    name = _a_host(world)
    if name is None:
        return
    for drained in (True, False):
        world.note(f"{name} drained: {drained}")
        await _set_drained(world, name, drained)
        if drained:
            await anyio.sleep(world.random.uniform(1, 6))


async def _set_drained(world: World, name: str, drained: bool) -> None:
    is_set = False
    while not is_set:
        try:
            async with connect_to(world.server, "administrator") as bus:
                bucket = await bus.key_value(subjects.NODES_BUCKET)
                entry = await bucket.get(name)
                if entry is not None:
                    record = msgspec.json.decode(entry.value, type=NodeRecord)
                    changed = msgspec.structs.replace(record, drained=drained)
                    await bucket.update(name, msgspec.json.encode(changed), entry.revision)
                is_set = True
        except* BusError:
            await anyio.sleep(0.5)


async def lower_the_lease(world: World) -> None:
    """An administrator lowers the lease of nodes and starts the allocators anew."""
    world.node_lease_s = max(6.0, world.node_lease_s / 2)
    world.note(f"node lease {world.node_lease_s:g} s")
    for name in list(world._programs):
        if name.startswith("allocator"):
            world.kill(name)


async def roll_everything(world: World) -> None:
    """Every process is killed in turn and comes back, as in an upgrade by somebody impatient."""
    for name in sorted(world._programs):
        if name not in world.given_up:
            world.kill(name)
            await anyio.sleep(world.random.uniform(0.1, 0.8))


async def crash_the_server(world: World) -> None:
    """All connections break; what is stored stays."""
    world.note("server crashes")
    world.server.crash()
    await anyio.sleep(world.random.choice((0.1, 2.0)))
    world.server.start()


async def lose_the_leader(world: World) -> None:
    """Streams and buckets answer nobody for a while."""
    world.note("no leader")
    seconds = world.random.choice((2.0, 9.0))
    world.server.lose_leader(seconds)
    # As all faults it ends before the world is healed, from when on everything must come true within a time.
    await anyio.sleep(seconds)


async def cut_a_node_off(world: World) -> None:
    """One direction of one agent's connection carries nothing, for a moment or for longer than its lease."""
    name = _a_host(world)
    if name is not None:
        seconds = world.random.choice((1.0, world.node_lease_s + 6.0, world.node_lease_s + 12.0))
        await _cut(world, world.process(f"agent.{name}"), min(seconds, world.length.longest_away_s))


async def cut_a_service_off(world: World) -> None:
    """One direction of a service's connection carries nothing for a while."""
    await _cut(world, world.process(_a_service(world)), world.random.choice((1.0, 4.0, 8.0)))


async def _cut(world: World, process: str, seconds: float) -> None:
    cut = (process, world.random.choice(("to", "from")))
    world.note(f"cut {cut} for {seconds:g} s")
    world.server.cut.add(cut)
    await anyio.sleep(seconds)
    world.server.cut.discard(cut)


def deafen(*kinds: str) -> Fault:
    """Streams and buckets do not answer a leader, until it is succeeded without hearing of it; all other messages come and go."""

    async def deafen_a_leader(world: World) -> None:
        process = world.process(_a_leader(world, *kinds))
        world.note(f"{process} is deaf")
        world.server.deaf.add(process)
        await anyio.sleep(world.random.uniform(4, 10))
        world.server.deaf.discard(process)

    return deafen_a_leader


async def forbid_an_agent(world: World) -> None:
    """The credential of a node loses its rights for a while."""
    name = _a_host(world)
    if name is not None:
        process = world.process(f"agent.{name}")
        world.note(f"{process} may nothing")
        world.server.permissions[process] = ((), (">",))
        await anyio.sleep(world.random.uniform(1, 6))
        world.server.permissions.pop(process, None)


def lose(*buckets: str) -> Fault:
    """One of these buckets is deleted with all that it holds."""

    async def lose_a_bucket(world: World) -> None:
        bucket = world.random.choice(buckets)
        world.note(f"{bucket} is lost")
        _forget_limits(world, bucket)
        world.server.store.lose_bucket(bucket)

    return lose_a_bucket


def _forget_limits(world: World, bucket: str) -> None:
    """Whoever starts between the loss of the pools and their being written again knows no limits."""
    if bucket == subjects.POOLS_BUCKET:
        world.recorded.running_limits, world.truth.job_limits, world.truth.hosts_of = {}, {}, {}


async def roll_a_bucket_back(world: World) -> None:
    """The server restarts without the newest writes of a bucket."""
    bucket, writes = world.random.choice(_LOSABLE), world.random.randint(1, 5)
    world.note(f"{bucket} loses {writes} writes")
    _forget_limits(world, bucket)
    world.server.crash()
    world.server.store.roll_back([bucket], writes)
    await anyio.sleep(0.1)
    world.server.start()


async def let_strangers_in(world: World) -> None:
    """Somebody sends damaged and forged messages beside the true ones."""
    world.note("strangers")
    world.server.faults = msgspec.structs.replace(world.server.faults, forged=0.3)
    await anyio.sleep(world.random.uniform(2, 6))
    world.server.faults = msgspec.structs.replace(world.server.faults, forged=0.0)


async def fill_the_log(world: World) -> None:
    """The log has no room for more, for a while."""
    stream = world.server.store.stream(subjects.STREAM)
    world.note("the log is full")
    stream.max_bytes = 0
    await anyio.sleep(world.random.choice((1.0, 6.0)))
    stream.max_bytes = None


async def set_clocks_wrong(world: World) -> None:
    """Whoever starts from now on has another wall clock."""
    world.wrong_clocks_ms = 3_600_000
    world.kill(_a_service(world))


FAULTS: Final[tuple[Fault, ...]] = (
    kill_a_service,
    freeze_a_service,
    flap,
    kill_an_agent,
    lose_an_agent,
    freeze_an_agent,
    kill_a_runner,
    lose_a_host,
    fill_a_disk,
    drain_a_node,
    lower_the_lease,
    roll_everything,
    crash_the_server,
    lose_the_leader,
    cut_a_node_off,
    cut_a_service_off,
    deafen(),
    forbid_an_agent,
    lose(*_LOSABLE),
    roll_a_bucket_back,
    fill_the_log,
    let_strangers_in,
    set_clocks_wrong,
    flood,
)
