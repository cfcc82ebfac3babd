"""Jobs a second through one runner: `python -m tests.bench.runner_starts`.

Each job is `/bin/true` in a scratch folder of its own, recorded, ended and acknowledged, over the socket as an agent does it. The
figures count only on a quiet machine; CPU of the runner a job counts on any.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from headrace_agent.runner.protocol import Acknowledge, EndAll, Ended
from tests.unit.runner.builders import a_run
from tests.unit.runner.harness import Agent, ARunner

ROUNDS = 5
JOBS = 2_000
AT_ONCE = (1, 2, 8)


def run_all(agent: Agent, at_once: int, first: int) -> float:
    """Seconds for `JOBS` jobs, so many at once."""
    started = time.perf_counter()
    agent.say(*(a_run(first + index, "/bin/true") for index in range(at_once)))
    for following in range(at_once, JOBS + at_once):
        end = agent.hear(Ended).end
        assert end.exit_code == 0, end
        agent.say(Acknowledge([end.key]))
        if following < JOBS:
            agent.say(a_run(first + following, "/bin/true"))
    return time.perf_counter() - started


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    print("at once   starts/s median (min-max)   runner CPU µs a job")
    for at_once in AT_ONCE:
        with tempfile.TemporaryDirectory() as folder:
            runner = ARunner(Path(folder))
            agent = runner.start("--log-level", "info")
            before = cpu_s(runner.pid)
            rates = sorted(JOBS / run_all(agent, at_once, JOBS * number) for number in range(ROUNDS))
            cpu_us = (cpu_s(runner.pid) - before) / (JOBS * ROUNDS) * 1e6
            agent.say(EndAll(0, "measured"))
            runner.wait()
            runner.stop()
            print(f"{at_once:7}   {statistics.median(rates):,.0f} ({rates[0]:,.0f}-{rates[-1]:,.0f})   {cpu_us:,.0f}")


if __name__ == "__main__":
    main()
