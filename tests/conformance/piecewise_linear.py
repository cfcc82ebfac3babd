"""Cases of piecewise-linear functions, with figures that an engine has to meet as exactly as it says that it can.

The plain twin has a library of such functions and meets every figure to the bit. An update of the services has none: each operation
is put to it as a question about an element (`tests.support.curves`), and its figures may be off by rounding.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

from tests.conformance.engines import Engine, Point
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
    compare = partial(_compare, engine.rounding)
    comparisons = []
    if "points" in case:
        comparisons.append(compare("points", [(float(x), float(y)) for x, y in case["points"]], graph.points()))
    if "bounds" in case:
        points = graph.points()
        start, end = case["bounds"]
        comparisons.append(compare("bounds", [(float(start), float(end))], [(points[0][0], points[-1][0])]))
    for x, left, right in case.get("samples", ()):
        comparisons.append(compare(f"limits at {x}", [(float(left), float(right))], [graph.limits(float(x))]))
    return Outcome.of(SUITE, case["name"], comparisons)


def _compare(rounding: float, what: str, expected: list[Point], actual: list[Point]) -> Comparison:
    close = len(expected) == len(actual) and all(
        math.isclose(a, b, rel_tol=rounding, abs_tol=rounding)
        for one, other in zip(expected, actual, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    return Comparison(what, str(expected), str(actual), close, expected == actual)
