"""Cases around the pools, each group with its own adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.conformance import pools_admission, pools_config, pools_integral, pools_savings
from tests.conformance.engines import Engine
from tests.conformance.reporting import Comparison, Outcome, Problem, Status, only_keys

__all__ = ["GROUPS", "SUITE", "run"]

SUITE: Final = "pools_and_admission"
#: Keys that anything may have and that are no input: names and remarks.
_REMARKS: Final = {"id", "group", "origin", "note"}
_STEPS: Final = {"tree_config", "pools", "steps"}
#: By group: the adapter, and the keys that it reads.
GROUPS: Final[dict[str, tuple[Callable[[dict[str, Any], Engine], list[Comparison]], set[str]]]] = {
    "admission": (pools_admission.steps, _STEPS),
    "move": (pools_admission.move, _STEPS | {"request", "trees", "pool_limits", "moves", "expect", "expect_by_state"}),
    "lightweight": (pools_admission.steps, _STEPS),
    "ephemeral": (pools_admission.steps, _STEPS),
    "multi_tree": (pools_admission.multi_tree, {"trees", "expect"}),
    "config": (
        pools_config.config,
        {
            "existing",
            "action",
            "expect",
            "reason",
            "as_user",
            "cluster_config",
            "after",
            "after_exists",
            "alert",
            "note2",
        },
    ),
    "transfer": (pools_config.transfer, {"pools", "request", "expect"}),
    "scheduler_config": (pools_config.scheduler_config, {"given", "expect"}),
    "fifo_order": (pools_config.fifo_order, {"fifo_sort_parameters", "operations", "expect_order"}),
    "integral_fields": (pools_integral.fields, {"given", "expect", "expect_absent"}),
    "integral_series": (pools_savings.series, {"given", "expect", "tolerance_relative"}),
    "integral_share": (pools_integral.share, {"given", "expect"}),
    "integral_housekeeping": (pools_savings.housekeeping, {"given", "expect"}),
}


def run(case: dict[str, Any], engine: Engine) -> Outcome:
    """One case of any group."""
    if "id" not in case or "group" not in case:
        raise Problem("a case without an id or a group")
    name, group = str(case["id"]), str(case["group"])
    if group not in GROUPS:
        return Outcome(SUITE, name, Status.UNSUPPORTED, detail=f"group {group} is not supported yet")
    adapter, keys = GROUPS[group]
    only_keys(case, keys | _REMARKS, "case")
    return Outcome.of(SUITE, name, adapter(case, engine))
