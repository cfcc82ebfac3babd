"""Cases of the library of piecewise-linear functions; all figures are compared exactly."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.engines import Engine
from tests.conformance.reporting import Comparison, Outcome, Problem, only_keys

__all__ = ["SUITE", "run"]

SUITE: Final = "piecewise_linear"
_OPERATIONS: Final = ("sum", "min", "compose", "transpose", "scale_argument", "shift", "identity")
_ARGUMENTS: Final[tuple[str, ...]] = ("scale", "dx", "dy")
_KEYS: Final = {"name", "note", "source", "origin", "op", "functions", "bounds", "samples", "points", *_ARGUMENTS}


def run(case: dict[str, Any], engine: Engine) -> Outcome:
    """One case: the operation done, and its points, domain and values at some places looked at."""
    only_keys(case, _KEYS, "case")
    if case["op"] not in _OPERATIONS:
        raise Problem(f"unknown operation {case['op']}")
    functions = [[(float(x), float(y)) for x, y in points] for points in case["functions"]]
    arguments: dict[str, float] = {name: float(case[name]) for name in _ARGUMENTS if name in case}
    graph = engine.operate(case["op"], functions, arguments)
    comparisons = []
    if "points" in case:
        comparisons.append(_compare("points", [(float(x), float(y)) for x, y in case["points"]], graph.points()))
    if "bounds" in case:
        points = graph.points()
        start, end = case["bounds"]
        comparisons.append(_compare("bounds", (float(start), float(end)), (points[0][0], points[-1][0])))
    for x, left, right in case.get("samples", ()):
        comparisons.append(_compare(f"limits at {x}", (float(left), float(right)), graph.limits(float(x))))
    return Outcome.of(SUITE, case["name"], comparisons)


def _compare(what: str, expected: Any, actual: Any) -> Comparison:
    return Comparison(what, str(expected), str(actual), expected == actual)
