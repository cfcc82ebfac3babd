"""The conformance cases of admission as requests over a real server, to admission and fair_share as they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_admission.service import serve as serve_admission
from headrace_admission.settings import AdmissionSettings
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from tests.conformance.runner import cases_of
from tests.support.admission_cases import ADMINISTRATOR, run_case
from tests.support.nats_server import nats_server
from tests.support.tree_services import a_bus, running

VECTORS = Path(__file__).parents[1] / "conformance" / "vectors" / "pools_and_admission.json"
CAP = "scheduler_max_operation_count"
CASES = [
    case
    for _, case in cases_of(VECTORS)
    if case["group"] in ("admission", "move", "lightweight", "ephemeral") and "steps" in case
]


@pytest.mark.long
async def test_services_agree_with_the_cases() -> None:
    wrong = []
    assert len(CASES) > 40
    with nats_server() as server:
        async with (
            running(server, FairShareSettings(administrators=ADMINISTRATOR), serve_fair_share, "fair-share"),
            running(server, AdmissionSettings(administrators=ADMINISTRATOR), serve_admission, "admission"),
            a_bus(server, "service", "allocator") as allocator,
        ):
            for case in CASES:
                if CAP not in case["tree_config"]:
                    comparisons = await run_case(server, allocator, case)
                    wrong += [(case["id"], each) for each in comparisons if not each.agrees]

    assert wrong == []


async def test_services_agree_with_the_cases_of_the_cap_on_all_trees_together() -> None:
    """Which is set for admission itself."""
    wrong = []
    capped = [case for case in CASES if CAP in case["tree_config"]]
    for case in capped:
        cap = case["tree_config"][CAP]
        settings = AdmissionSettings(
            administrators=ADMINISTRATOR, max_operation_count=cap, max_operation_count_per_user=cap
        )
        with nats_server() as server:
            async with (
                running(server, FairShareSettings(administrators=ADMINISTRATOR), serve_fair_share, "fair-share"),
                running(server, settings, serve_admission, "admission"),
                a_bus(server, "service", "allocator") as allocator,
            ):
                comparisons = await run_case(server, allocator, case)
                wrong += [(case["id"], each) for each in comparisons if not each.agrees]

    assert capped
    assert wrong == []
