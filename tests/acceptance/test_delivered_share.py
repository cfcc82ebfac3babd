"""What a new user tries: a pool with many small operations beside one that is owed more, with real processes and no preemption."""

from __future__ import annotations

import anyio
import pytest

from tests.support.delivered_share import SHAPES, delivered_shares

pytestmark = pytest.mark.long

#: Long enough for jobs of every length to end a few times.
_WINDOW_S = 8.0


@pytest.mark.parametrize(
    "shape",
    [
        "many_against_one",
        pytest.param("two_below_production", marks=pytest.mark.long),
        pytest.param("gangs", marks=pytest.mark.long),
    ],
)
def test_every_pool_has_what_it_is_owed_from_the_first_job_on(shape: str) -> None:
    """By the best operation alone, the many small ones had everything for as long as one of them waited."""
    pools = anyio.run(delivered_shares, SHAPES[shape], _WINDOW_S)

    assert all(pool.owed > 0 for pool in pools.values())
    assert {name: pool.error for name, pool in pools.items() if pool.error > 0.1} == {}
