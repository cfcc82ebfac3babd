"""`headrace node get` lists the jobs that run on a node, with what is left to them."""

from __future__ import annotations

import json
import re

from tests.support.headrace_up import Up


def test_a_node_lists_its_running_jobs_with_their_operation_and_the_time_that_is_left() -> None:
    with Up(nodes=("alpha:cpu=4,memory=2G", "beta:cpu=1,memory=1G")) as up:
        words = ("--title", "my work", "--time-limit", "2h", "--jobs", "2", "--cpu", "2", "--", "sleep", "600")
        up.run("run", "--id", "on-alpha", *words)
        while len(jobs := json.loads(up.run("node", "get", "alpha", "--json").stdout)["jobs"]) < 2:
            pass

        assert sorted((job["operation"], job["index"]) for job in jobs) == [("on-alpha", 0), ("on-alpha", 1)]
        shown = up.run("node", "get", "alpha").stdout
        assert re.search(r"on-alpha +my work +\S+ +[01] +1 +\S+ +(2h|1h59m)", shown)
        assert json.loads(up.run("node", "get", "beta", "--json").stdout)["jobs"] == []
