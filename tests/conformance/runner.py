"""Runs the cases of vector files and tells how each came out."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.conformance import fair_share, piecewise_linear, pools_and_admission, yarn
from tests.conformance.allocation import running as allocation
from tests.conformance.engines import Engine
from tests.conformance.reporting import Outcome, Problem, Status, Unsupported
from tests.conformance.watched import unread, watched

__all__ = ["SUITES", "cases_of", "run_case", "run_files"]

SUITES: Final[dict[str, Callable[[dict[str, Any], Engine], Outcome]]] = {
    fair_share.SUITE: fair_share.run,
    piecewise_linear.SUITE: piecewise_linear.run,
    pools_and_admission.SUITE: pools_and_admission.run,
    allocation.SUITE: allocation.run,
    yarn.SUITE: yarn.run,
}


def cases_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The suite and every case of a file. Raises `Problem`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        suite, cases = content["suite"], content["cases"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{path} is no file of cases: {error!r}") from error
    unknown = sorted(set(content) - {"suite", "cases", "note", "source", "units"})
    if unknown and suite in SUITES:
        raise Problem(f"unknown key in {path}: {', '.join(unknown)}")
    for case in cases:
        yield suite, case


def run_case(suite: str, case: dict[str, Any], engine: Engine) -> Outcome:
    """One case; what goes wrong in the engine fails it, what cannot be read is said to be the runner's own error."""
    name = _name(case) or "(no name)"
    if suite not in SUITES:
        return Outcome(suite, name, Status.UNSUPPORTED, detail=f"suite {suite} is not supported yet")
    given = watched(case)
    try:
        outcome = SUITES[suite](given, engine)
        # A case that failed may have ended early.
        swallowed = list(unread(given)) if outcome.status is Status.PASSED else []
        if swallowed:
            raise Problem(f"keys that nobody read: {', '.join(swallowed)}")
        return outcome
    except Unsupported as why:
        return Outcome(suite, name, Status.UNSUPPORTED, detail=str(why))
    except Problem as problem:
        return Outcome(suite, name, Status.FAILED, detail=f"error of the runner: {problem}", broken=True)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        detail = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        return Outcome(suite, name, Status.FAILED, detail=detail)


def _name(case: dict[str, Any]) -> str:
    return str(case.get("name") or case.get("id") or "")


def run_files(paths: Iterable[Path], engine: Engine, only: str | None = None) -> Iterator[Outcome]:
    """Every case of the files, or those of one name."""
    for path in paths:
        for suite, case in cases_of(path):
            if only is None or _name(case) == only:
                yield run_case(suite, case, engine)
