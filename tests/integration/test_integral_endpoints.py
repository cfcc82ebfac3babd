"""Whatever bytes come to integral: they are counted, answered, and no volume moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire import subjects
from headrace.wire.integral import Advance, Advanced, AdvanceGap, AdvancePartTaken, GetVolumes
from headrace.wire.refusals import Refusal
from headrace_integral.service import serve
from headrace_integral.settings import IntegralSettings
from tests.support.effort import few_or_many
from tests.support.mutate import answers_to, mutated_several
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import TREE, a_bus, ask, running

ANSWER: Any = Advanced | AdvancePartTaken | AdvanceGap | Refusal


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server() as there:
        yield there


@pytest.mark.parametrize(
    ("subject", "kind"), [(subjects.integral_advance(TREE), Advance), (subjects.integral_volumes(TREE), GetVolumes)]
)
@settings(max_examples=few_or_many(3, 20))
@given(data=st.data())
async def test_never_do_damaged_requests_move_a_volume(
    server: NatsServer, subject: str, kind: Any, data: st.DataObject
) -> None:
    messages = data.draw(mutated_several(kind))
    volumes = subjects.integral_volumes(TREE)
    async with a_bus(server) as bus, running(server, IntegralSettings(), serve) as runtime:
        before = await ask(bus, volumes, GetVolumes(TREE), Advanced)
        answers = await answers_to(
            messages, kind, ANSWER, runtime.endpoints, lambda message: bus.request(subject, message, timeout_s=5)
        )
        after = await ask(bus, volumes, GetVolumes(TREE), Advanced)

    if kind is GetVolumes or not any(isinstance(answer, Advanced) for answer in answers):
        assert before == after
