"""The present configuration. It is not in the log: it is told anew at each start, and only `State.configure` changes it."""

from __future__ import annotations

import msgspec

from headrace.ids import TreeName
from headrace_admission.state.rules import GlobalRules, TreeRules


class HeldBack(msgspec.Struct, frozen=True):
    """A tree's new rules that cannot be taken yet, and why."""

    rules: TreeRules
    reason: str


class Configuration:
    """The rules that hold now, and those that wait."""

    def __init__(self, everywhere: GlobalRules) -> None:
        self.everywhere = everywhere
        #: Configured trees. There are books of other trees too, while operations live in them.
        self.trees: dict[TreeName, TreeRules] = {}
        self.held_back: dict[TreeName, HeldBack] = {}
