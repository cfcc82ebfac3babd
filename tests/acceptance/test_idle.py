"""A `headrace up` with nothing to do."""

from __future__ import annotations

import time

from tests.support.headrace_up import Up

#: From «ready» until what a start brings with it is over.
SETTLED_S = 3.0
LOOKED_S = 20.0
#: So often the work below can be done in a second of a core of the machine on which that second was set.
WORKS = 75


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
    """How much of a core a fixed piece of work takes now."""
    began_s = time.process_time()
    {number % 997: (number, str(number)) for number in range(60_000)}
    return time.process_time() - began_s
