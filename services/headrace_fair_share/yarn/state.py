"""The state of a tree under a YARN policy that is kept between updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headrace_fair_share.starvation.clocks import Age
from headrace_fair_share.yarn.shortage import Due


class YarnState(msgspec.Struct, frozen=True):
    """Times (in counted time) and shortages by element key. Empty under the tree's own policy."""

    #: Time when an element last reached its starvation threshold, and when a pool last had its minimum.
    had_share_ms: Mapping[str, int] = {}
    had_minimum_ms: Mapping[str, int] = {}
    dues: Mapping[str, Due] = {}

    @staticmethod
    def saved(ages: Iterable[Age], now_ms: int) -> YarnState:
        """Return the state from saved ages: times only, because the next update computes the shortages."""
        listed = list(ages)
        return YarnState(
            {age.key: now_ms - age.had_share_ms for age in listed if age.had_share_ms is not None},
            {age.key: now_ms - age.had_minimum_ms for age in listed if age.had_minimum_ms is not None},
        )

    def with_ages(self, ages: Iterable[Age], now_ms: int) -> list[Age]:
        """Return the ages with those of this state added."""
        of = {age.key: age for age in ages}
        return [
            msgspec.structs.replace(
                of.get(key) or Age(key),
                had_share_ms=_passed(self.had_share_ms.get(key), now_ms),
                had_minimum_ms=_passed(self.had_minimum_ms.get(key), now_ms),
            )
            for key in {**of, **self.had_share_ms, **self.had_minimum_ms}
        ]


def _passed(moment_ms: int | None, now_ms: int) -> int | None:
    return None if moment_ms is None else max(0, now_ms - moment_ms)
