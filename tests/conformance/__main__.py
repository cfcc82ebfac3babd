"""`python -m tests.conformance FILE... [--only NAME] [--json] [--engine production|twin] [--via engine|service]`.

Prints a line for every case that fails or is not supported, and as its last line how many passed, failed and were skipped. The exit
status is 0 only if nothing failed and nothing was skipped, 2 if a case or a file could not be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.conformance.engines import engine_of
from tests.conformance.reporting import Outcome, Problem, Status
from tests.conformance.runner import run_files


def main(arguments: list[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="Runs conformance vectors.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--only", metavar="NAME", help="cases of this name, with expected and actual figures")
    parser.add_argument("--json", action="store_true", help="one JSON object per case")
    parser.add_argument(
        "--engine",
        choices=("production", "twin"),
        default="production",
        help="the engine that the services run (default), or the plain, slow twin that it is judged by",
    )
    parser.add_argument(
        "--via",
        choices=("engine", "service"),
        default="engine",
        help="drive the engine directly (default), or by the service's messages, some of them lost and some repeated",
    )
    options = parser.parse_args(arguments)
    if options.via == "service" and options.engine == "twin":
        parser.error("the twin is no service: --via service goes with --engine production")
    engine = engine_of("service" if options.via == "service" else options.engine)
    counts = dict.fromkeys(Status, 0)
    broken = False
    try:
        for outcome in run_files(options.files, engine, options.only):
            counts[outcome.status] += 1
            broken = broken or outcome.broken
            if options.json:
                print(_as_json(outcome), flush=True)
            elif options.only is not None:
                _print_figures(outcome)
            elif outcome.status is not Status.PASSED:
                print(f"{outcome.name}: {outcome.status}: {outcome.detail}", flush=True)
    except Problem as problem:
        print(f"error of the runner: {problem}", file=sys.stderr)
        broken = True
    if options.only is not None and not sum(counts.values()) and not broken:
        print(f"there is no case named {options.only}", file=sys.stderr)
        broken = True
    summary = f"{counts[Status.PASSED]} passed, {counts[Status.FAILED]} failed"
    if counts[Status.UNSUPPORTED]:
        summary += f", {counts[Status.UNSUPPORTED]} skipped"
    print(summary, file=sys.stderr if options.json else sys.stdout)
    if broken:
        return 2
    return 1 if counts[Status.FAILED] or counts[Status.UNSUPPORTED] else 0


def _as_json(outcome: Outcome) -> str:
    fields = {"suite": outcome.suite, "name": outcome.name, "status": outcome.status, "detail": outcome.detail}
    return json.dumps(fields, ensure_ascii=False)


def _print_figures(outcome: Outcome) -> None:
    print(f"{outcome.name}: {outcome.status}")
    if outcome.detail and not outcome.comparisons:
        print(f"  {outcome.detail}")
    for each in outcome.comparisons:
        bits = "" if each.exact is None else ", to the bit" if each.exact else ", not to the bit"
        print(f"  {each.what}: {'agrees' if each.agrees else 'DIFFERS'}{bits}")
        print(f"    expected {each.expected}\n    actual   {each.actual}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
