"""A `headrace up` with nothing to do."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.headrace_up import Up

#: From «ready» until what a start brings with it is over.
SETTLED_S = 3.0
LOOKED_S = 20.0
#: So often the work below can be done in half a second of a core of the machine on which that was set.
WORKS = 52
_WORDS = {str(number): [number, number / 3, str(number)] * 3 for number in range(200)}


@pytest.mark.long
def test_a_stack_with_nothing_to_do_takes_less_than_a_second_of_a_core_in_twenty() -> None:
    """The second is told in work that is done meanwhile: on a slow or a busy machine both take longer."""
    with Up() as up:
        time.sleep(SETTLED_S)
        before_s, works_s = up.cpu_s(), []
        for _ in range(10):
            time.sleep(LOOKED_S / 10)
            works_s.append(seconds_of_work())

        assert up.cpu_s() - before_s < WORKS * sum(works_s) / len(works_s)


def seconds_of_work() -> float:
    """How much of a core some wake-ups take now, each for a little to do, as services have it that rest.

    Work in one go would not do: where others share the caches, a wake-up becomes dearer and a loop does not.
    """
    began_s = time.process_time()
    for _ in range(20):
        time.sleep(0.02)
        json.loads(json.dumps(_WORDS))
    return time.process_time() - began_s
