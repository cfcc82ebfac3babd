"""The exchange with integral: send an advance and receive the volumes, each in as many messages as its size needs."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.bus import Bus
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.integral import Advance, Advanced, AdvancePartTaken, GetVolumes, parts_of
from headrace_fair_share.facts.known_volumes import AdvanceAnswer

_ANSWER: Final[Any] = AdvanceAnswer | AdvancePartTaken


async def answer_to(advance: Advance, bus: Bus, timeout_s: float) -> AdvanceAnswer:
    """Send an advance and return integral's whole answer. `timeout_s` applies to each request. Raises `BusError`, `BadMessage`."""
    tree = advance.tree
    answer: AdvanceAnswer | AdvancePartTaken | None = None
    for part in parts_of(advance):
        answer = decode(await bus.request(subjects.integral_advance(tree), encode(part), timeout_s=timeout_s), _ANSWER)
        if not isinstance(answer, AdvancePartTaken):
            break
    while isinstance(answer, Advanced) and answer.more:
        request = encode(GetVolumes(tree, first=len(answer.pools)))
        page = decode(await bus.request(subjects.integral_volumes(tree), request, timeout_s=timeout_s), Advanced)
        if page.version != answer.version or not page.pools:
            raise BadMessage(f"volumes of version {page.version} were received instead of version {answer.version}")
        answer = msgspec.structs.replace(answer, pools=answer.pools + page.pools, more=page.more)
    if answer is None or isinstance(answer, AdvancePartTaken):
        raise BadMessage("integral did not receive all parts of the advance")
    return answer
