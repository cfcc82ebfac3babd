"""`python -m headrace_fair_share.plan FILE [TOTAL]`: prints JSON of `headrace.wire.plan`. `-` reads standard input."""

from __future__ import annotations

import sys

import msgspec

from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.tree_file.problems import Problems, UnusableFile
from headrace.tree_file.values import STDIN, read
from headrace.wire.plan import Plan, PlanRefused
from headrace_fair_share.hdrf.arrays import BrokenInvariant
from headrace_fair_share.plan.compute import computed
from headrace_fair_share.plan.description import described

_BROKEN = 1
_USAGE = 2


def plan_of(path: str, total: dict[str, str] | None = None) -> Plan | PlanRefused:
    """Read, check and compute a plan. If `total` is given, it replaces the total in the plan. Raises `BrokenInvariant`."""
    name = "standard input" if path == STDIN else path
    try:
        amounts = ResourceAmounts().read(total, "--total").whole if total is not None else None
        return computed(described(read(path, Problems(name)), name, amounts), name)
    except UnusableFile as unusable:
        return PlanRefused(name, unusable.problems)


def main() -> int:
    """Run the process. Exit status 0 with a plan, 2 if the file cannot be used, 1 if the algorithm failed."""
    if len(sys.argv) not in (2, 3):
        print("usage: python -m headrace_fair_share.plan FILE [TOTAL as JSON]", file=sys.stderr)
        return _USAGE
    try:
        answer = plan_of(sys.argv[1], msgspec.json.decode(sys.argv[2]) if len(sys.argv) > 2 else None)
    except BrokenInvariant as error:
        print(f"a fault in Headrace, not in {sys.argv[1]}; please report it with that file: {error}", file=sys.stderr)
        return _BROKEN
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    return _USAGE if isinstance(answer, PlanRefused) else 0


if __name__ == "__main__":
    sys.exit(main())
