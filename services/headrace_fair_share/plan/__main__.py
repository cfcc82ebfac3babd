"""`python -m headrace_fair_share.plan FILE`: JSON of `headrace.wire.plan` on standard output; `-` reads standard input."""

from __future__ import annotations

import sys

import msgspec

from headrace.wire.plan import Plan, PlanProblem, PlanRefused
from headrace_fair_share.hdrf.arrays import BrokenInvariant
from headrace_fair_share.plan.check import check
from headrace_fair_share.plan.compute import computed
from headrace_fair_share.plan.figures import Desk
from headrace_fair_share.plan.file import STDIN, Unusable, parse, read

__all__ = ["main", "plan_of"]

_BROKEN = 1
_USAGE = 2


def plan_of(path: str) -> Plan | PlanRefused:
    """Reads, checks and computes. Raises `BrokenInvariant`."""
    name = "standard input" if path == STDIN else path
    problems: list[PlanProblem] = []
    try:
        root = parse(read(path), problems)
    except Unusable as unusable:
        return PlanRefused(name, [*problems, unusable.problem])
    description = check(root, Desk(problems))
    if description is None:
        return PlanRefused(name, sorted(problems, key=lambda problem: problem.line))
    return computed(description, name)


def main() -> int:
    """The process: status 0 where there is a plan, 2 where the file cannot be used, 1 where the algorithm broke."""
    if len(sys.argv) != 2:
        print("usage: python -m headrace_fair_share.plan FILE", file=sys.stderr)
        return _USAGE
    try:
        answer = plan_of(sys.argv[1])
    except BrokenInvariant as error:
        print(f"a fault in Headrace, not in {sys.argv[1]}; please report it with that file: {error}", file=sys.stderr)
        return _BROKEN
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    return _USAGE if isinstance(answer, PlanRefused) else 0


if __name__ == "__main__":
    sys.exit(main())
