"""The present configuration. It is not in the log: it is read again at each start, and only `State.configure` changes it."""

from __future__ import annotations

import msgspec

from headrace.ids import TreeName
from headrace_admission.state.rules import GlobalRules, TreeRules


class HeldBack(msgspec.Struct, frozen=True):
    """New rules of a tree that cannot be applied yet, and the reason."""

    rules: TreeRules
    reason: str


class Configuration:
    """The rules in force, and the rules that cannot be applied yet."""

    def __init__(self, everywhere: GlobalRules) -> None:
        self.everywhere = everywhere
        #: Configured trees. Other trees also have books while operations live in them.
        self.trees: dict[TreeName, TreeRules] = {}
        self.held_back: dict[TreeName, HeldBack] = {}
