"""Measures and prints a table: `python -m tests.bench`.

ONLY=name measures one figure; BENCH_JSON=FILE writes all figures there as well. The exit status is 0 whatever the figures are: a
busy machine is no error.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

import tests.bench.admission
import tests.bench.delivered_share
import tests.bench.fair_share
import tests.bench.fair_share_service
import tests.bench.heartbeats
import tests.bench.heartbeats_at_size
import tests.bench.history
import tests.bench.integral
import tests.bench.recovery
import tests.bench.starvation
import tests.bench.whole_stack  # noqa: F401
from tests.bench.registry import REGISTRY, Figure


def main() -> int:
    only = os.environ.get("ONLY")
    if only and only not in REGISTRY.figures:
        print(f"there is no figure {only}; there are: {', '.join(REGISTRY.figures)}", file=sys.stderr)
        return 2
    chosen = [figure for name, figure in REGISTRY.figures.items() if only in (None, "", name)]
    width = max(len(figure.name) for figure in chosen)
    print(f"{'figure':{width}}  {'median':>9} {'smallest':>9} {'largest':>9} {'goal':>9}  unit")
    figures: dict[str, Figure] = {}
    for each in chosen:
        got = figures[each.name] = each.measure()
        goal = f"{'>' if each.more_is_better else ''}{each.goal:.4g}"
        row = f"{got.median:9.4g} {got.min:9.4g} {got.max:9.4g} {goal:>9}"
        print(f"{each.name:{width}}  {row}  {got.unit}: {each.what}", flush=True)
    if os.environ.get("BENCH_JSON"):
        Path(os.environ["BENCH_JSON"]).write_bytes(msgspec.json.format(msgspec.json.encode(figures)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
