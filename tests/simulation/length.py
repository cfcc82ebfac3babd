"""How much happens in a world: much in a long one, and in a brief one what finds the same faults in less time."""

from __future__ import annotations

from typing import Final

import msgspec


class Length(msgspec.Struct, frozen=True):
    """How much happens in a course."""

    people: int
    #: Jobs at most of an aim.
    aimed_jobs: int
    #: Faults begin within so long.
    unkind_s: float
    faults_per_s: float
    #: Leases of nodes, one of which a world draws.
    leases_s: tuple[float, ...]
    #: A job that outlasts most of these leases.
    longest_job_s: int
    #: A node is away no longer; that is longer than most of these leases, too.
    longest_away_s: float
    #: Fair_share computes once in so long while anything changes. An update costs more than all else in these small worlds.
    update_spacing_s: float
    #: So often everything that must hold is looked at.
    check_s: float


LONG: Final = Length(
    people=4,
    aimed_jobs=150,
    unkind_s=12.0,
    faults_per_s=1.0,
    leases_s=(8.0, 8.0, 14.0, 30.0),
    longest_job_s=30,
    longest_away_s=42.0,
    update_spacing_s=0.7,
    check_s=0.5,
)
BRIEF: Final = Length(
    people=2,
    aimed_jobs=50,
    unkind_s=5.0,
    faults_per_s=2.4,
    leases_s=(6.0, 6.0, 6.0, 9.0),
    longest_job_s=10,
    longest_away_s=12.0,
    update_spacing_s=1.4,
    check_s=1.0,
)
