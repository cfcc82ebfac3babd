"""Changes of pools that the user must confirm, because they end running jobs or remove pools in use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from headrace.client import Client
from headrace.counted import counted
from headrace.wire.pool_changes import Create, Move, PoolChange, PoolPlan, Set
from headrace.wire.what_if import JobsOverLimits, WhatIfAnswer
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common, Switch, change, confirmed

#: Upper bound of the pools that a question names.
_MOST_NAMED: Final = 3


@Parameter(name="*")
@dataclass(frozen=True)
class ChangeOptions:
    """Options of commands whose changes may end running jobs."""

    dry_run: Annotated[Switch, Parameter(name="--dry-run")] = False
    """Only show what would change, with all shares and every broken rule."""
    yes: Annotated[Switch, Parameter(name="--yes")] = False
    """Do not ask before a change that ends running jobs or removes pools in use. Without a terminal nothing is asked, and without this
    option such a change is refused."""


class Confirming:
    """One command that changes pools. If the user must confirm the changes, the command sends its request again after that."""

    def __init__(self, options: ChangeOptions | None) -> None:
        options = options or ChangeOptions()
        self._dry_run, self._is_confirmed = options.dry_run, options.yes
        #: Question that the user must answer before the changes are made; empty: there is no question.
        self.question = ""

    async def request(
        self,
        client: Client,
        changes: Sequence[PoolChange],
        *,
        question: str = "",
        warnings: Sequence[str] = (),
        expected_revision: int = 0,
    ) -> PoolPlan | WhatIfAnswer:
        """Make the changes. For a dry run, or if the user must still confirm the changes, only return what they would do.

        Changes must be confirmed if `question` is given, or if running jobs do not fit below new limits. Raises `Refused`, `Unanswered`.
        """
        if self._dry_run or (not self._is_confirmed and (question or any(map(_may_end_jobs, changes)))):
            answer = await client.pools.what_if(changes)
            reasons = [*([question] if question else []), *([over_limits_words(answer)] if answer.over_limits else [])]
            if self._dry_run or (reasons and not self._is_confirmed):
                self.question = "" if self._dry_run else "; ".join(reasons)
                needed = [] if self._is_confirmed else [f"{reason}; confirm this, or add --yes" for reason in reasons]
                return msgspec.structs.replace(answer, plan=_warned(answer.plan, [*warnings, *needed]))
        return _warned(await client.pools.change(changes, expected_revision=expected_revision), warnings)

    def run(
        self,
        common: Common | None,
        ask: Callable[[Client], Awaitable[PoolPlan | WhatIfAnswer]],
        done: str,
        *,
        whole: bool = False,
    ) -> int:
        """Run `ask`, which calls `request`. If the user must confirm the changes, ask the user, and run `ask` again after a yes.

        Return the exit status.
        """
        status = change(common, ask, done, whole=whole)
        if not self.question or status != Exit.DONE:
            return status
        if not confirmed(f"{self.question}."):
            return Exit.REFUSED
        self._is_confirmed, self.question = True, ""
        return change(common, ask, done, whole=whole)


def over_limits_words(answer: WhatIfAnswer) -> str:
    """Return which pools would use more than their limits, and how many of their running jobs would be preempted."""
    named = "; ".join(map(_words, answer.over_limits[:_MOST_NAMED]))
    left = len(answer.over_limits) - _MOST_NAMED
    return named + (f"; the same for {counted(left, 'more pool')}" if left > 0 else "")


def _words(over: JobsOverLimits) -> str:
    jobs = counted(over.running_jobs, "running job")
    return f"at least {over.jobs} of {jobs} of pool {over.pool} will be preempted, because they do not fit below its resource_limits"


def _may_end_jobs(change: PoolChange) -> bool:
    """True for changes that may set or lower the limits of running jobs."""
    return isinstance(change, Move) or (isinstance(change, Create | Set) and b"resource_limits" in change.attributes)


def _warned(plan: PoolPlan, warnings: Sequence[str]) -> PoolPlan:
    """Return the plan with `warnings` in front of the plan's own warnings.

    A warning of the plan is left out if one of `warnings` gives the same reason, because `warnings` also name the line of the file.
    """
    reasons = ((each, each.partition(": ")[2]) for each in plan.warnings)
    rest = [each for each, reason in reasons if not (reason and any(more.endswith(f": {reason}") for more in warnings))]
    return msgspec.structs.replace(plan, warnings=[*warnings, *rest])
