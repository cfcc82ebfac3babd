"""Compute the strong guarantees and limits of pools from the minimums and maximums of queues. Figures that would break a rule of a tree are
changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.resources import Resources, format_amount
from headrace_cli.yarn.allocation_file import AllocationFile, Queue
from headrace_cli.yarn.amounts import Amounts
from headrace_cli.yarn.warnings import Warnings

#: Amounts by resource, in units of `Resources`.
Figures = dict[str, int]
_MEMORY: Final = "memory"
#: Largest number of queues that one warning names.
_MOST_NAMED: Final = 5


@dataclass
class Bounds:
    """Guarantees and limits by the path of the queue. A queue without a guarantee or limit has no entry."""

    guarantees: dict[str, Figures] = field(default_factory=dict)
    limits: dict[str, Figures] = field(default_factory=dict)
    #: True if a guarantee names only memory.
    by_memory: bool = False


class BoundsOf:
    """Computes the guarantees and limits of all queues of a file."""

    def __init__(self, file: AllocationFile, fair: set[str], total: Resources, warnings: Warnings) -> None:
        self._file = file
        #: Paths of the queues with YARN's policy fair; that policy shares only memory.
        self._fair = fair
        self._total = total
        self._warnings = warnings
        self._bounds = Bounds()

    def work_out(self) -> Bounds:
        """Return the guarantees and limits. Warns of each figure that is converted, dropped or raised."""
        default: Figures | None = None
        if "queueMaxResourcesDefault" in self._file.values:
            said = self._file.values["queueMaxResourcesDefault"]
            default = self.resolved(said.value, said.line, "queueMaxResourcesDefault")
            words = "applies to each parent queue too, except the root, which cannot be limited here"
            self._warnings.say("W12", said.line, "queueMaxResourcesDefault", words)
        root = self._file.root
        for key in ("minResources", "maxResources", "maxChildResources"):
            if key in root.values:
                words = "dropped, because the root can have neither a guarantee nor a limit here"
                self._warnings.say("W25", root.values[key].line, f"{root.path} {key}", words)
        for queue in list(root.all())[1:]:
            self._limit(queue, default)
            self._guarantee(queue)
        self._warn_of_default()
        for queue in root.children.values():
            self._raise(queue)
        return self._bounds

    def resolved(self, amounts: Amounts, line: int, place: str) -> Figures | None:
        """Return a limit in amounts. A percentage becomes that part of the tree's present resources.

        Returns None if the tree has no resources of which to take a percentage.
        """
        figures = amounts.of(self._total)
        if not amounts.is_percentage:
            return figures
        if not figures:
            self._warnings.say(
                "W02",
                line,
                place,
                "the tree has no nodes, so this percentage sets no limit; import again when the tree has nodes",
            )
            return None
        words = (
            f"a percentage becomes {_words(figures)}, computed from the present cluster, and does not change with it"
        )
        self._warnings.say("W02", line, place, words)
        return figures

    def warn_if_closed(self, limit: Figures | None, line: int, place: str, what: str) -> None:
        """Warn of a limit of 0, which closes pools: no job can run there. `what` names these pools and ends in `is` or `are`."""
        none = ", ".join(name for name, amount in (limit or {}).items() if amount == 0)
        if none:
            self._warnings.say("W24", line, place, f"the limit of {none} is 0: {what} closed to jobs that need it")

    def _warn_of_default(self) -> None:
        """Warn of a default limit of 0, once for all queues that it closes.

        A default limit of 0 closes the queues that set no maximum themselves, unless their minimum raises the limit.
        """
        closed: dict[str, list[str]] = {}
        for queue in list(self._file.root.all())[1:]:
            for name, amount in self._bounds.limits.get(queue.path, {}).items():
                if amount == 0 and "maxResources" not in queue.values:
                    closed.setdefault(name, []).append(queue.path)
        key = "queueMaxResourcesDefault"
        for paths in {tuple(paths) for paths in closed.values()}:
            figures = {name: 0 for name, those in closed.items() if tuple(those) == paths}
            verb = "is" if len(paths) == 1 else "are"
            more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
            what = f"{', '.join(paths[:_MOST_NAMED])}{more} {verb}"
            self.warn_if_closed(figures, self._file.values[key].line, key, what)

    def _limit(self, queue: Queue, default: Figures | None) -> None:
        if "maxResources" in queue.values:
            said = queue.values["maxResources"]
            limit = self.resolved(said.value, said.line, f"{queue.path} maxResources")
            if limit is not None:
                self._bounds.limits[queue.path] = limit
            self.warn_if_closed(limit, said.line, f"{queue.path} maxResources", "the pool is")
        elif default:
            self._bounds.limits[queue.path] = dict(default)

    def _guarantee(self, queue: Queue) -> None:
        if "minResources" not in queue.values:
            return
        said, place = queue.values["minResources"], f"{queue.path} minResources"
        amounts: Amounts = said.value
        if amounts.is_percentage:
            self._warnings.say(
                "W03", said.line, place, "in YARN, a percentage here sets no minimum, so no guarantee is set"
            )
            return
        # A minimum that does not name cpu or memory has 0 of that resource.
        own = {"cpu": 0, _MEMORY: 0} | amounts.of(self._total)
        dropped = ""
        if queue.path in self._fair:
            dropped = ", ".join(
                format_amount(name, amount) + f" {name}" for name, amount in own.items() if name != _MEMORY
            )
            own = {_MEMORY: own[_MEMORY]}
            self._bounds.by_memory = True
        if dropped:
            words = (
                f"policy fair shares only memory: {dropped} of the minimum are dropped; the rest follows from memory"
            )
            self._warnings.say("W06", said.line, place, words)
        if any(own.values()):
            self._bounds.guarantees[queue.path] = own
        limit = self._bounds.limits.get(queue.path, {})
        for name, amount in own.items():
            if name in limit and limit[name] < amount:
                words = f"the limit {format_amount(name, limit[name])} of {name} is below the minimum: raised to the minimum"
                self._warnings.say("W04", said.line, place, f"{words}, {format_amount(name, amount)}")
                limit[name] = amount

    def _raise(self, queue: Queue) -> None:
        """Raise the guarantees of parents to the sum of their children's guarantees, from the leaves up."""
        together: Figures = {}
        for child in queue.children.values():
            self._raise(child)
            for name, amount in self._bounds.guarantees.get(child.path, {}).items():
                together[name] = together.get(name, 0) + amount
        own = self._bounds.guarantees.get(queue.path, {})
        raised = own | {
            name: amount for name, amount in together.items() if amount > own.get(name, 0) or name not in own
        }
        if together and raised != own:
            words = f"children are guaranteed {_words(together)} in sum: raised from {_words(own)} to {_words(raised)}"
            self._warnings.say("W05", queue.line, f"{queue.path} minResources", words)
            self._bounds.guarantees[queue.path] = raised


def _words(figures: Mapping[str, int]) -> str:
    return ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in figures.items()) or "nothing"
