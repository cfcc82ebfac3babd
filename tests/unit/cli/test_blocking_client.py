"""The client without an event loop has the methods of the asynchronous client."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

import pytest

from headrace.bus import Bus
from headrace.client import blocking
from headrace.client.admission import DryRuns, Files, Groups, Hosts, Persons
from headrace.client.client import Client, Operation
from headrace.client.consumption import Consumption
from headrace.client.finished import FinishedOperations
from headrace.client.happenings import Happenings
from headrace.client.place import Place
from headrace.client.pools import Pools
from headrace.client.processes import Processes
from headrace.client.tokens import Tokens
from headrace.client.trees import Trees
from headrace.ids import TreeName, UserName
from headrace.runtime.clock import SystemClock

#: The asynchronous classes, the classes for programs without an event loop, and what these leave out: methods that call back, and methods
#: with which `headrace web` makes tokens for other people.
PAIRS: Final[list[tuple[type, type, set[str]]]] = [
    (Client, blocking.Client, set()),
    (Operation, blocking.Operation, set()),
    (Pools, blocking.PoolCalls, set()),
    (Trees, blocking.TreeCalls, set()),
    (Happenings, blocking.HappeningCalls, {"follow", "follow_decisions"}),
    (Persons, blocking.PersonCalls, set()),
    (Groups, blocking.GroupCalls, set()),
    (Tokens, blocking.TokenCalls, {"create_for", "end"}),
    (Files, blocking.FileCalls, set()),
    (DryRuns, blocking.DryRunCalls, set()),
    (Consumption, blocking.ConsumptionCalls, set()),
    (FinishedOperations, blocking.FinishedCalls, set()),
    (Hosts, blocking.HostCalls, set()),
    (Processes, blocking.ProcessCalls, set()),
]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("asynchronous", "synchronous", "left_out"), PAIRS, ids=lambda each: getattr(each, "__name__", "")
)
def test_each_method_is_there(asynchronous: type, synchronous: type, left_out: set[str]) -> None:
    assert public(asynchronous) - public(synchronous) == left_out


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients whose connections are open."""
    found: list[Client] = []

    @asynccontextmanager
    async def connected(**_: object) -> AsyncIterator[Client]:
        place = Place("", "", "", TreeName("default"), "")
        found.append(Client(cast("Bus", None), SystemClock(), place, UserName("ada"), timeout_s=1))
        yield found[-1]
        found.pop()

    monkeypatch.setattr(blocking, "connect", connected)
    return found


def test_a_connection_lasts_as_long_as_what_was_got_over_it(connections: list[Client]) -> None:
    """`headrace.Client().run(...).wait()` failed, because nothing referred to the client any more."""
    operation, pools = blocking.Client().operation("work"), blocking.Client().pools
    gc.collect()
    assert len(connections) == 2
    assert operation.id == "work"

    del operation
    gc.collect()
    assert len(connections) == 1
    del pools
    gc.collect()
    assert connections == []


def test_each_part_of_the_client_is_there(connections: list[Client]) -> None:
    kinds = {asynchronous: synchronous for asynchronous, synchronous, _ in PAIRS}

    with blocking.Client() as client:
        (made,) = connections
        wanted = {name: kinds[type(part)] for name, part in vars(made).items() if type(part) in kinds}
        found = {name: type(part) for name, part in vars(client).items() if name in wanted}

    assert found == wanted
    assert len(wanted) == len(PAIRS) - 2
