"""The commands of docs/how-to/integral-guarantees.md, run as they stand there."""

from __future__ import annotations

import json
import time

import pytest

from docs.pictures.one_machine import commands, up_of_the_page


@pytest.mark.long
def test_the_commands_of_the_page_do_what_it_says() -> None:
    with up_of_the_page() as up:
        for block in ("pools", "work", "burst", "look", "cap"):
            for words in commands(block):
                up.run(*words)
        fields = ("integral_pool_capacity/cpu", "specified_burst_guarantee_resources/cpu", "resource_limits/cpu")
        nightly: dict[str, float] = {}
        while nightly.get("resource_limits/cpu") != 3.0:  # a limit is in force with the next update
            time.sleep(0.1)
            nightly = json.loads(up.run("pool", "get", "nightly", *fields, "--json").stdout)
        promised = json.loads(up.run("pool", "get", "<Root>", "resource_distribution_info", "--json").stdout)
        shown = up.run("pool", "volume", "nightly", "--plot", "-").stdout
        picture = (up.state / "nightly.svg").read_text()

    assert list(nightly.values()) == [30.0, 3.0, 3.0]
    info = promised["resource_distribution_info"]
    assert (info["distributed_resources"]["cpu"], info["undistributed_resources"]["cpu"]) == (4.0, 0.0)
    assert "core-seconds: savings" in shown
    assert "<svg" in picture
