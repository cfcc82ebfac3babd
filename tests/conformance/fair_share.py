"""Cases of the fair share: updates in a row on one tree, once for every set of options, and the figures that come of them."""

from __future__ import annotations

from typing import Any, Final

from headrace.resources import EPS, RESOURCE_NAMES, Share
from headrace_fair_share.hdrf.model import ErrorKind, TreeInput
from tests.conformance.engines import Engine
from tests.conformance.reporting import Comparison, Outcome, Problem, only_keys
from tests.conformance.trees import ROOT, CaseTree
from tests.support.update_result import ElementShares, UpdateResult

__all__ = ["SUITE", "run"]

SUITE: Final = "fair_share"
_CASE: Final = {
    "name",
    "note",
    "source",
    "origin",
    "total",
    "main_resource",
    "options",
    "option_matrix",
    "pools",
    "operations",
    "generate_operations",
    "seconds_since_last_update",
    "steps",
    "expect",
    "tolerance",
    "same_across_options",
    "same_function_size_of",
}
_STEP: Final = {"note", "change", "options", "total", "seconds_since_last_update", "expect"}
_SHARES: Final = {
    "fair_share": "fair_share",
    "fair_share_strong": "strong_part",
    "fair_share_integral": "integral_part",
    "fair_share_weight_proportional": "weight_proportional_part",
    "promised_guarantee_fair_share": "promised_guarantee_fair_share",
    "demand_share": "demand_share",
    "usage_share": "usage_share",
    "limits_share": "limits_share",
    "strong_guarantee_share": "strong_guarantee_share",
    "integral_guarantee_share": "integral_guarantee_share",
    "estimated_guarantee_share": "estimated_guarantee_share",
}
_PARTS: Final = ("fair_share", "strong_part", "integral_part", "weight_proportional_part")
_ERRORS: Final = {
    ErrorKind.OVERCOMMIT_FLOW: "pool_tree_guarantees_overcommit",
    ErrorKind.OVERCOMMIT_BURST: "pool_tree_guarantees_overcommit",
    ErrorKind.NESTED_PROMISED_GUARANTEE: "nested_promised_guarantee_fair_share_pools",
    ErrorKind.PRIORITY_WITHOUT_DONOR: "priority_strong_guarantee_adjustment_pools_without_donor",
}


class _Run:
    """One run of a case with one set of options."""

    def __init__(self, case: dict[str, Any], options: dict[str, Any], engine: Engine) -> None:
        self._engine = engine
        self._tolerance = float(case.get("tolerance", 1e-7))
        self._tree = CaseTree(case, options)
        self._label = " ".join(f"{key}={value}" for key, value in options.items())
        self.comparisons: list[Comparison] = []
        self.results: list[UpdateResult] = []
        self.sizes: dict[str, int] = {}
        steps = case.get("steps") or [
            {"seconds_since_last_update": case.get("seconds_since_last_update"), "expect": case.get("expect", {})}
        ]
        for number, step in enumerate(steps):
            self._step(step, f"step {number + 1} " if len(steps) > 1 else "", case.get("same_function_size_of", ()))

    def _step(self, step: dict[str, Any], label: str, sizes_of: list[str]) -> None:
        only_keys(step, _STEP, "step")
        self._tree.lay_options(step.get("options", {}))
        if "total" in step:
            self._tree.lay_total(step["total"])
        for change in step.get("change", ()):
            self._tree.change(change)
        given, seconds = self._tree.update_input(), step.get("seconds_since_last_update")
        fast = self._tree.fast_fifo
        dt_us = None if seconds is None else round(seconds * 1e6)
        result = self._engine.update(given, dt_us=dt_us, fast_fifo=fast)
        self.results.append(result)
        for pool in sizes_of:
            self.sizes[pool] = self._engine.function_size(given, pool, fast_fifo=fast)
        self._tree.integral.update(result.integral)
        for name, attributes in step.get("expect", {}).items():
            place = " ".join(filter(None, (self._label, label.strip(), name)))
            if name == "errors":
                self._expect_errors(attributes, result, place)
            else:
                self._expect(attributes, name, (given, result), place)

    def _expect_errors(self, expected: dict[str, Any], result: UpdateResult, place: str) -> None:
        only_keys(expected, {"present", "absent"}, "errors")
        found = sorted({_ERRORS[error.kind] for error in result.errors})
        for kind, wanted in (("present", True), ("absent", False)):
            for name in expected.get(kind, ()):
                if name not in _ERRORS.values():
                    raise Problem(f"unknown error {name}")
                self._add(f"{place} {kind}", name, found, (name in found) is wanted)

    def _expect(
        self, attributes: dict[str, Any], name: str, updated: tuple[TreeInput, UpdateResult], place: str
    ) -> None:
        _, result = updated
        element = _element(result, name)
        exact = set(attributes.get("_exact", ()))
        if exact - set(attributes):
            raise Problem(f"exact figures of {name} that are not given: {exact - set(attributes)}")
        for attribute, expected in attributes.items():
            what = f"{place} {attribute}"
            if attribute in _SHARES:
                only_keys(expected, set(RESOURCE_NAMES), what)
                actual: Share = getattr(element, _SHARES[attribute])
                wanted = tuple(float(expected.get(resource, 0.0)) for resource in RESOURCE_NAMES)
                near = all(abs(got - want) <= self._tolerance for got, want in zip(actual, wanted, strict=True))
                self._add(what, wanted, actual, near, actual == wanted if attribute in exact else None)
            elif attribute == "accumulated_volume":
                self._expect_volume(expected, result, name, what)
            elif attribute != "_exact":
                self._expect_fact(attribute, expected, (element, updated, name), what)

    def _expect_volume(self, expected: dict[str, Any], result: UpdateResult, name: str, what: str) -> None:
        only_keys(expected, {"value", "tolerance"}, what)
        only_keys(expected["value"], set(RESOURCE_NAMES), what)
        if name not in result.integral:
            raise Problem(f"{name} keeps no volume")
        volume = dict(zip(RESOURCE_NAMES, result.integral[name].volume, strict=True))
        volume["cpu"] /= 100
        tolerance = expected.get("tolerance", self._tolerance)
        for resource, want in expected["value"].items():
            allowed = tolerance.get(resource, 0.0) if isinstance(tolerance, dict) else tolerance
            near = abs(volume[resource] - want) <= allowed
            self._add(f"{what} {resource}", want, volume[resource], near)

    def _expect_fact(
        self,
        attribute: str,
        expected: Any,
        of: tuple[ElementShares, tuple[TreeInput, UpdateResult], str],
        what: str,
    ) -> None:
        element, (given, result), name = of
        fair = element.fair_share
        match attribute:
            case "fifo_index" | "effective_fifo_index":
                actual: Any = getattr(element, attribute)
            case "dominant_resource":
                actual = RESOURCE_NAMES[element.dominant_resource]
            case "guarantee_within_limits":
                pairs = zip(element.strong_guarantee_share, element.integral_guarantee_share, strict=True)
                actual = all(s + i <= most for (s, i), most in zip(pairs, element.limits_share, strict=True))
            case "fair_share_within_ones":
                # A false one records how another engine rounds: good to have, not required.
                if not isinstance(expected, bool):
                    raise Problem(f"{what}: {expected!r} is neither true nor false")
                actual = all(part <= 1.0 for part in fair)
                near = not expected or all(part <= 1.0 + self._tolerance for part in fair)
                self._add(what, expected, actual, near, actual == expected)
                return
            case "fair_share_within_demand":
                actual = all(part <= most + EPS for part, most in zip(fair, element.demand_share, strict=True))
            case "usage_equals_demand_share":
                actual = element.usage_share == element.demand_share
            case "below_fair_share":
                actual = self._engine.is_below_fair_share(element, 1.0)
            case "satisfaction_ratio":
                actual = self._engine.satisfaction(given, result, name)
                wanted = float("inf") if expected == "infinite" else float(expected)
                self._add(what, wanted, actual, actual == wanted or abs(actual - wanted) <= self._tolerance)
                return
            case _:
                raise Problem(f"unknown key in {what}: {attribute}")
        self._add(what, expected, actual, actual == expected)

    def _add(self, what: str, expected: Any, actual: Any, agrees: bool, exact: bool | None = None) -> None:
        self.comparisons.append(Comparison(what, str(expected), str(actual), agrees, exact))


def run(case: dict[str, Any], engine: Engine) -> Outcome:
    """One case, with every set of options that it names."""
    only_keys(case, _CASE, "case")
    runs = [_Run(case, options, engine) for options in case.get("option_matrix") or [{}]]
    comparisons = [comparison for each in runs for comparison in each.comparisons]
    first = runs[0]
    for other in runs[1:]:
        if case.get("same_across_options"):
            pairs = zip(first.results, other.results, strict=True)
            same = all(_fingerprint(one) == _fingerprint(two) for one, two in pairs)
            comparisons.append(Comparison("fair shares across options", "the same bits", str(same), same))
        if case.get("same_function_size_of"):
            equal = first.sizes == other.sizes
            comparisons.append(Comparison("function sizes", str(first.sizes), str(other.sizes), equal))
    return Outcome.of(SUITE, case["name"], comparisons)


def _element(result: UpdateResult, name: str) -> ElementShares:
    if name == ROOT:
        return result.root
    found = result.pools.get(name) or result.operations.get(name)
    if found is None:
        raise Problem(f"there is no element {name}")
    return found


def _fingerprint(result: UpdateResult) -> dict[str, list[Share]]:
    elements = {ROOT: result.root, **result.pools, **result.operations}
    return {name: [getattr(element, part) for part in _PARTS] for name, element in elements.items()}
