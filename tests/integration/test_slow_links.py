"""Services on a slow link to the server: round trips that do not depend on each other are made at the same time."""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

from headrace.wire import subjects
from headrace.wire.operations import ListOperations, OperationList
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from tests.support.nats_server import nats_server
from tests.support.tree_services import a_bus, ask, running_on

PATIENCE_S: Final = 60.0
#: Kinds of requests that must be on their way to the server at the same time.
AT_ONCE: Final = 10


async def test_admission_begins_to_serve_many_kinds_of_requests_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a round trip of 0.5 s some 80 of them one after the other took 40 s from the lease to the first answer."""
    waiting, are_many = 0, anyio.Event()
    with nats_server() as server, anyio.fail_after(PATIENCE_S):
        async with a_bus(server, "service", "admission") as bus, a_bus(server, "user", "anna") as anna:
            serve_one = bus.serve

            async def serve_slowly(subject: str, *rest: Any, **more: Any) -> Any:
                nonlocal waiting
                if subject.startswith(subjects.user("*", "op.")):
                    waiting += 1
                    if waiting == AT_ONCE:
                        are_many.set()
                    await are_many.wait()
                return await serve_one(subject, *rest, **more)

            monkeypatch.setattr(bus, "serve", serve_slowly)
            async with running_on(bus, AdmissionSettings(administrators="*"), serve, "admission"):
                await are_many.wait()
                listed = await ask(anna, subjects.user("anna", "op.list"), ListOperations(), OperationList)

    assert isinstance(listed, OperationList)
