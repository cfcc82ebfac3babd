"""A `headrace up` with nothing to do."""

from __future__ import annotations

import time

from tests.support.headrace_up import Up

#: From «ready» until what a start brings with it is over.
SETTLED_S = 3.0
LOOKED_S = 20.0


def test_a_stack_with_nothing_to_do_takes_less_than_a_second_of_a_core_in_twenty() -> None:
    with Up() as up:
        time.sleep(SETTLED_S)
        before_s = up.cpu_s()
        time.sleep(LOOKED_S)

        assert up.cpu_s() - before_s < 1.0
