"""What an imported file sets although it is not supported is named with its line and the reason."""

from __future__ import annotations

from headrace.ids import TreeName
from headrace.wire.pool_changes import PoolPlan
from headrace_cli.commands.pools.confirming import _warned
from headrace_cli.commands.pools.files import described

FILE = b"""\
options:
  packing: {enable: true}
  ssd_priority_preemption:
    enable: true
    media: [ssd]
pools:
  a:
    weight: 2
    pools:
      b:
        redirect_to_cluster: other
        enable_detailed_logs: false
"""


def test_each_attribute_of_a_file_that_is_not_supported_is_named_with_its_line() -> None:
    packing, media, redirect = described(FILE, "pools.yaml").ignored

    assert packing.startswith("pools.yaml:2: options.packing: not supported: free resources of a node go to")
    assert media == "pools.yaml:5: options.ssd_priority_preemption.media: not supported: no job can ask for a medium"
    assert redirect.startswith("pools.yaml:11: pools.a.pools.b.redirect_to_cluster: not supported: operations run in")


def test_a_value_that_cannot_be_used_is_left_to_the_owner_of_the_tree() -> None:
    assert described(b"pools: {a: {redirect_to_cluster: 1, weight: x, enable_detailed_logs: false}}", "f").ignored == ()


def test_a_warning_with_a_line_replaces_the_warning_that_gives_the_same_reason() -> None:
    why = "not supported: nodes have no wings"
    plan = PoolPlan(TreeName("default"), warnings=[f"wings of a and b: {why}", "weight of c: in force only on Mondays"])

    told = _warned(plan, [f"f:2: pools.a.wings: {why}", f"f:3: pools.b.wings: {why}"]).warnings

    assert told == [f"f:2: pools.a.wings: {why}", f"f:3: pools.b.wings: {why}", "weight of c: in force only on Mondays"]
    assert _warned(plan, []) == plan
