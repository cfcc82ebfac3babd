"""Measures and prints a table: `python -m tests.bench`.

ONLY=name,name measures some figures; BENCH_JSON=FILE writes all figures there as well. With BUSY=1 one process for each core spins
meanwhile. The exit status is 0 whatever the figures are: a
busy machine is no error.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys

import tests.bench.admission
import tests.bench.allocator_slices
import tests.bench.command_line
import tests.bench.consumption
import tests.bench.delivered_share
import tests.bench.fair_share
import tests.bench.fair_share_service
import tests.bench.flood
import tests.bench.heartbeats
import tests.bench.heartbeats_at_size
import tests.bench.history
import tests.bench.integral
import tests.bench.leader_loss
import tests.bench.recovery
import tests.bench.simulated_starts
import tests.bench.starvation
import tests.bench.waiting_shares
import tests.bench.walk
import tests.bench.web_load
import tests.bench.web_tab
import tests.bench.whole_stack  # noqa: F401
from headrace.runtime.service import COLLECTOR_THRESHOLDS
from tests.bench.busy import other_work
from tests.bench.registry import REGISTRY, CannotMeasure, Figure, head_of_table, row_of_table, write_figures


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measures and prints a table. ONLY=name,name measures some, BENCH_JSON=FILE writes all there too, "
        "and with BUSY=1 one process for each core spins meanwhile.",
        epilog=f"figures: {', '.join(REGISTRY.figures)}",
    )
    parser.parse_args()
    only = [name for name in os.environ.get("ONLY", "").split(",") if name]
    for name in only:
        if name not in REGISTRY.figures:
            print(f"there is no figure {name}; there are: {', '.join(REGISTRY.figures)}", file=sys.stderr)
            return 2
    # As in every service: else the collector would look at millions of objects in the midst of what is measured.
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    chosen = [figure for name, figure in REGISTRY.figures.items() if not only or name in only]
    width = max(len(figure.name) for figure in chosen)
    print(head_of_table(width))
    figures: dict[str, Figure] = {}
    with other_work():
        for each in chosen:
            try:
                got = figures[each.name] = each.measure()
            except CannotMeasure as error:
                print(f"{each.name:{width}}  not measured: {error}", flush=True)
                continue
            print(row_of_table(each, got, width), flush=True)
    write_figures(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
