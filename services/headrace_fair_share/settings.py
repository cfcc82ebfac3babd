"""Settings of the fair-share service."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec

from headrace.pools import TREE_ATTRIBUTES, Defects, TreeOptions
from headrace.runtime.settings import CommonSettings
from headrace_fair_share.configuration.rules import TreeBounds
from headrace_fair_share.engine import EngineOptions
from headrace_fair_share.history.sampling import HistoryOptions

Period = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]


class FairShareSettings(CommonSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Computes the fair share of every pool and operation of a tree."""

    #: Longest time between two updates; 0: 200 ms with fewer than 1,000 operations, else 1 s.
    fair_share_update_period_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 0
    #: Shortest pause between two updates. After a long update the pause is longer: at least twice the time that the update took, and, if
    #: the update took 4 ms or more, at least four times that time or 100 ms, whichever is shorter. This rule never makes the pause longer
    #: than a second.
    update_spacing_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 5
    #: Longest time that an update waits for the volumes of integral guarantees.
    advance_budget_ms: Annotated[int, msgspec.Meta(ge=1, le=60_000)] = 20
    #: Number of advances (changes of the volumes) that are kept for the integral service while it does not answer; later advances are
    #: dropped and counted.
    most_missed_advances: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    #: Largest age of the allocator's usage report at which time counts for starvation. While the report is older, starvation statuses do
    #: not change and starvation clocks stand still.
    usage_counts_within_ms: Period = 2_000
    #: Time without a message from the allocator after which its complete usage is requested.
    usage_silence_ms: Period = 1_000
    #: Pattern of pool names that every user may give.
    pool_name_pattern_for_users: str = TreeBounds().pool_name_pattern_for_users
    #: Pattern of pool names that administrators may give in addition.
    pool_name_pattern_for_administrators: str = TreeBounds().pool_name_pattern_for_administrators
    #: Largest number of levels of pools below the root.
    most_pool_levels: Annotated[int, msgspec.Meta(ge=1, le=100)] = TreeBounds().most_levels
    #: Largest number of pools in the subtree of any pool, itself included.
    largest_pool_subtree: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = TreeBounds().largest_subtree
    #: Time between two saves of the starvation clocks.
    clocks_save_period_ms: Period = 5_000
    #: Time between two samples of pools for `headrace pool volume`; longer if `history_max_bytes` would not last for `history_max_age_ms`.
    history_period_ms: Annotated[int, msgspec.Meta(ge=100, le=3_600_000)] = 10_000
    #: Longest time that samples are kept; must be the value given to `headrace bus provision`.
    history_max_age_ms: Annotated[int, msgspec.Meta(ge=60_000, le=10**11)] = 7 * 86_400_000
    #: Largest size of all samples together; must be the value given to `headrace bus provision`.
    history_max_bytes: Annotated[int, msgspec.Meta(ge=2**20, le=2**50)] = 512 * 2**20

    #: Folder for trees on which the algorithm failed; empty: `headrace-broken-trees` in the system's folder of temporary files.
    broken_trees_folder: str = ""

    def broken_trees_path(self) -> Path:
        """Return the folder for trees on which the algorithm failed."""
        return Path(self.broken_trees_folder or Path(tempfile.gettempdir()) / "headrace-broken-trees")

    #: Options with which the tree is created if it does not exist yet; an existing tree keeps its own options.
    new_tree_options: dict[str, bool | int | float | str | dict[str, int | float | str]] = msgspec.field(
        default_factory=dict
    )

    def tree_options(self) -> TreeOptions:
        """Return the options of a new tree. Raises `BadInput` for an unknown option or an unusable value."""
        try:
            changed = TREE_ATTRIBUTES.changed(TreeOptions(), self.new_tree_options, "new_tree_options")
        except Defects as defects:
            raise defects.problems[0] from None
        if changed.unknown:
            key = changed.unknown[0]
            value = self.new_tree_options.get(key)
            raise TREE_ATTRIBUTES.refuse_unknown(key, value, f"new_tree_options.{key}")
        options: TreeOptions = changed.value
        return options

    def engine_options(self) -> EngineOptions:
        """Return the settings that the engine reads."""
        return EngineOptions(
            usage_counts_within_us=self.usage_counts_within_ms * 1000,
            most_missed_advances=self.most_missed_advances,
            advance_budget_us=self.advance_budget_ms * 1000,
            update_spacing_us=self.update_spacing_ms * 1000,
            update_period_us=self.fair_share_update_period_ms * 1000,
            bounds=TreeBounds(
                pool_name_pattern_for_users=self.pool_name_pattern_for_users,
                pool_name_pattern_for_administrators=self.pool_name_pattern_for_administrators,
                most_levels=self.most_pool_levels,
                largest_subtree=self.largest_pool_subtree,
            ),
        )

    def history_options(self) -> HistoryOptions:
        """Return the settings that the history reads."""
        return HistoryOptions(self.history_period_ms, self.history_max_age_ms, self.history_max_bytes)

    def __post_init__(self) -> None:
        for name in ("pool_name_pattern_for_users", "pool_name_pattern_for_administrators"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise ValueError(f"{name}: {error}") from None
