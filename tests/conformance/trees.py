"""Trees of cases, turned into what an update is made from; changes of later steps are laid over the same descriptions."""

from __future__ import annotations

from typing import Any, Final

from headrace.pools import IntegralType, PoolMode
from headrace.resources import RESOURCE_NAMES, ZERO, Resources, Share
from headrace_fair_share.hdrf.model import (
    IntegralState,
    Limits,
    OperationInput,
    PoolInput,
    TreeInput,
    UpdateOptions,
    VolumeAmounts,
)
from tests.conformance.reporting import Problem, only_keys

__all__ = ["CaseTree", "amounts", "within"]

ROOT: Final = "<root>"
_CPU: Final = RESOURCE_NAMES.index("cpu")
_INTEGRAL: Final = {
    "guarantee_type",
    "resource_flow",
    "burst_guarantee",
    "volume",
    "relaxed_share_multiplier_limit",
    "can_accept_free_volume",
    "distribute_free_volume_among_children",
}
_POOL: Final = {
    "name",
    "parent",
    "mode",
    "weight",
    "strong_guarantee",
    "resource_limits",
    "integral",
    "fifo_reordering",
    "gang_step_function",
    "compute_promised_guarantee_fair_share",
    "priority_strong_guarantee_adjustment",
    "priority_strong_guarantee_adjustment_donor",
}
_OPERATION: Final = {
    "name",
    "parent",
    "weight",
    "demand",
    "usage",
    "resource_limits",
    "gang",
    "best_allocation_share",
}
_OPTIONS: Final = {
    "improved",
    "distribution_gap",
    "gang_step_function",
    "fifo_reordering",
    "fast_fifo",
    "smooth_period",
    "saturation_period",
    "main_resource",
}
_GENERATED: Final = {"prefix", "count", "parent", "demand", "weight_first", "weight_step"}


class CaseTree:
    """The tree of one run of a case, and what is kept of it from step to step."""

    def __init__(self, case: dict[str, Any], options: dict[str, Any]) -> None:
        self._total: dict[str, Any] = case["total"]
        self._options: dict[str, Any] = {}
        if "main_resource" in case:
            self._options["main_resource"] = case["main_resource"]
        self.lay_options({**case.get("options", {}), **options})
        self._pools: dict[str, dict[str, Any]] = {}
        self._operations: dict[str, dict[str, Any]] = {}
        self.integral: dict[str, IntegralState] = {}
        for pool in case["pools"]:
            self._name(pool["name"])
            self._pools[pool["name"]] = {}
            self._lay(self._pools[pool["name"]], pool, _POOL, f"pool {pool['name']}")
        for operation in (*case["operations"], *_generated(case.get("generate_operations", ()))):
            self._append(operation)

    @property
    def fast_fifo(self) -> bool:
        return bool(self._options.get("fast_fifo", False))

    def lay_options(self, options: dict[str, Any]) -> None:
        only_keys(options, _OPTIONS, "options")
        self._options.update(options)

    def lay_total(self, total: dict[str, Any]) -> None:
        self._total = total

    def change(self, change: dict[str, Any]) -> None:
        """One entry of a step's changes."""
        if "add" in change:
            if change["add"] != "operation":
                raise Problem(f"only operations can be added, not {change['add']}")
            self._append({key: value for key, value in change.items() if key != "add"})
            return
        name = change["name"]
        if name in self._pools:
            self._lay(self._pools[name], change, _POOL, f"change of {name}")
        elif name in self._operations:
            self._lay(self._operations[name], change, _OPERATION, f"change of {name}")
        else:
            raise Problem(f"change of an unknown element {name}")

    def update_input(self) -> TreeInput:
        """All that stands now."""
        places = {ROOT: -1, **{name: place for place, name in enumerate(self._pools)}}
        return TreeInput(
            total=amounts(self._total),
            options=self._tree_options(),
            pools=[_pool(pool, places) for pool in self._pools.values()],
            operations=[_operation(operation, places) for operation in self._operations.values()],
            integral=dict(self.integral),
        )

    def _name(self, name: str) -> None:
        if name in self._pools or name in self._operations or name == ROOT:
            raise Problem(f"two elements have the name {name}")

    def _append(self, operation: dict[str, Any]) -> None:
        self._name(operation["name"])
        self._operations[operation["name"]] = {}
        self._lay(self._operations[operation["name"]], operation, _OPERATION, f"operation {operation['name']}")

    def _lay(self, element: dict[str, Any], given: dict[str, Any], known: set[str], place: str) -> None:
        only_keys(given, known, place)
        integral = given.get("integral")
        if integral is not None:
            only_keys(integral, _INTEGRAL, f"integral of {place}")
            if "volume" in integral:
                state = self.integral.get(given["name"], IntegralState())
                self.integral[given["name"]] = IntegralState(_volume(integral["volume"]), state.last_share_ratio)
        element.update(given)

    def _tree_options(self) -> UpdateOptions:
        given = self._options
        return UpdateOptions(
            main_resource=RESOURCE_NAMES.index(given.get("main_resource", "cpu")),
            smooth_period_s=float(given.get("smooth_period", 60)),
            saturation_period_s=float(given.get("saturation_period", 86400)),
            gang_step_function=given.get("gang_step_function", False),
            fifo_reordering=given.get("fifo_reordering", False),
            improved=given.get("improved", False),
            distribution_gap=given.get("distribution_gap", False),
            charge_skipped_relaxed_pools=True,
        )


def _pool(given: dict[str, Any], places: dict[str, int]) -> PoolInput:
    integral = given.get("integral", {})
    return PoolInput(
        name=given["name"],
        parent=_place(given["parent"], places),
        mode=PoolMode(given.get("mode", "fair_share")),
        weight=given.get("weight"),
        strong_guarantee=_partial(given.get("strong_guarantee", {})),
        limits=_partial(given.get("resource_limits", {})),
        integral=IntegralType(integral.get("guarantee_type", "none")),
        resource_flow=amounts(integral.get("resource_flow", {})),
        burst_guarantee=amounts(integral.get("burst_guarantee", {})),
        relaxed_share_multiplier_limit=integral.get("relaxed_share_multiplier_limit"),
        can_accept_free_volume=integral.get("can_accept_free_volume", True),
        distribute_free_volume=integral.get("distribute_free_volume_among_children", False),
        gang_step_function=given.get("gang_step_function", True),
        fifo_reordering=given.get("fifo_reordering", False),
        compute_promised_guarantee=given.get("compute_promised_guarantee_fair_share", False),
        priority_strong_guarantee=given.get("priority_strong_guarantee_adjustment", False),
        priority_strong_guarantee_donor=given.get("priority_strong_guarantee_adjustment_donor", False),
    )


def _operation(given: dict[str, Any], places: dict[str, int]) -> OperationInput:
    return OperationInput(
        name=given["name"],
        pool=_place(given["parent"], places),
        weight=given.get("weight", 1.0),
        demand=amounts(given["demand"]),
        usage=amounts(given["usage"]) if "usage" in given else ZERO,
        limits=_partial(given.get("resource_limits", {})),
        gang=given.get("gang", False),
        best_allocation_share=_share(given.get("best_allocation_share", {})),
    )


def _place(name: str, places: dict[str, int]) -> int:
    if name not in places:
        raise Problem(f"there is no pool {name}")
    return places[name]


def _amount(resource: str, figure: float) -> int:
    amount = round(figure * 100) if resource == "cpu" else round(figure)
    if abs(amount - (figure * 100 if resource == "cpu" else figure)) > 1e-6:
        raise Problem(f"{figure} is no whole amount of {resource}")
    return amount


def within(expected: float, actual: float, tolerance: float) -> bool:
    """True for figures that are apart by no more than a part of the larger one, or by next to nothing."""
    return abs(expected - actual) <= max(tolerance * max(abs(expected), abs(actual)), 1e-6 * tolerance)


def amounts(figures: dict[str, float]) -> Resources:
    """Whole amounts of what a case names by resource, cpu in cores."""
    only_keys(figures, set(RESOURCE_NAMES), "an amount")
    return Resources(**{name: _amount(name, figure) for name, figure in figures.items()})


def _partial(figures: dict[str, float]) -> Limits:
    only_keys(figures, set(RESOURCE_NAMES), "an amount")
    u, c, g, m, n = (_amount(name, figures[name]) if name in figures else None for name in RESOURCE_NAMES)
    return (u, c, g, m, n)


def _share(figures: dict[str, float]) -> Share:
    only_keys(figures, set(RESOURCE_NAMES), "a share")
    u, c, g, m, n = (float(figures.get(name, 1.0)) for name in RESOURCE_NAMES)
    return (u, c, g, m, n)


def _volume(figures: dict[str, float]) -> VolumeAmounts:
    """Amounts times seconds; cpu in whole hundredths of a core-second."""
    only_keys(figures, set(RESOURCE_NAMES), "a volume")
    numbers = [float(figures.get(name, 0.0)) for name in RESOURCE_NAMES]
    numbers[_CPU] = float(round(numbers[_CPU] * 100))
    u, c, g, m, n = numbers
    return (u, c, g, m, n)


def _generated(descriptions: Any) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for given in descriptions:
        only_keys(given, _GENERATED, "generate_operations")
        operations += [
            {
                "name": f"{given['prefix']}{number}",
                "parent": given["parent"],
                "demand": given["demand"],
                "weight": given["weight_first"] + number * given["weight_step"],
            }
            for number in range(given["count"])
        ]
    return operations
