"""Running jobs that do not fit below the limits of their pools."""

from __future__ import annotations

from headrace.ids import PoolName
from headrace.wire.pool_changes import Move, Set
from headrace.wire.what_if import JobsOverLimits, WhatIf
from tests.unit.fair_share.test_what_if import an_engine, asked, attributes

A, B, C = PoolName("a"), PoolName("b"), PoolName("c")


def limited(pool: PoolName, **amounts: object) -> Set:
    return Set(pool, attributes(resource_limits=amounts))


def over(*changes: Set | Move) -> list[JobsOverLimits]:
    engine, _ = an_engine()
    return asked(engine, WhatIf(changes=list(changes))).over_limits


def test_as_many_jobs_as_do_not_fit_below_the_new_limit() -> None:
    assert over(limited(A, cpu=7.5)) == [JobsOverLimits(A, 3, 10)]
    assert over(limited(A, cpu=0)) == [JobsOverLimits(A, 10, 10)]
    assert over(limited(A, cpu=7.5, user_slots=2)) == [JobsOverLimits(A, 8, 10)]


def test_none_if_all_fit_or_no_job_uses_the_resource_or_nothing_runs() -> None:
    assert over(limited(A, cpu=10), limited(A, gpu=0), limited(B, cpu=0)) == []


def test_jobs_that_end_for_a_pool_below_do_not_count_again_above() -> None:
    moved = Move(A, parent=C)
    assert over(moved, limited(C, cpu=4)) == [JobsOverLimits(C, 6, 10)]
    assert over(moved, limited(C, cpu=4), limited(A, cpu=3)) == [JobsOverLimits(A, 7, 10)]
    assert over(moved, limited(C, cpu=2), limited(A, cpu=3)) == [JobsOverLimits(C, 1, 3), JobsOverLimits(A, 7, 10)]
