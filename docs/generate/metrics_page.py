"""Writes docs/reference/metrics.md from what running services tell: `make docs-reference`."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

SERVICES: Final = ("admission", "integral", "fair_share", "allocator", "agent")
_HEAD = """\
# Metrics

A service publishes its metrics for Prometheus at `http://HOST:PORT/metrics`, and its health at `/health`, if its setting `metrics_port` is
set: `HEADRACE_ALLOCATOR_METRICS_PORT=9464 headrace up`, or `metrics_port = 9464` in its settings file.
It listens on 127.0.0.1; `metrics_host` names another address.
A standby publishes only metrics about its own process, with `headrace_leads` 0.

Times are in seconds, cpu in cores, memory in bytes; the name of a count has no unit.
Every metric has the label `service`, and `tree` if the service serves one tree.
Metrics of pools have the label `pool`, and exist for the resources that the cluster has.

"""


def metrics_page(scraped: Mapping[str, str]) -> str:
    """The page, from what each service tells. A metric of every service has `all` for the services."""
    kinds: dict[str, str] = {}
    says: dict[str, dict[str, str]] = defaultdict(dict)
    for service, text in scraped.items():
        for family in text_string_to_metric_families(text):
            name = family.name + ("_total" if family.type == "counter" else "")
            kinds[name] = family.type
            says[name][service] = family.documentation.rstrip(".") + "."
    lines = ["| metric | type | services | what it says |", "|---|---|---|---|"]
    for name, by_service in sorted(says.items()):
        told_by = "all" if len(by_service) == len(scraped) else ", ".join(by_service)
        sentences = " ".join(dict.fromkeys(by_service.values()))
        lines.append(f"| `{name}` | {kinds[name]} | {told_by} | {sentences} |")
    return _HEAD + "\n".join(lines) + "\n"


def scrape(port: int, timeout_s: float = 10.0) -> str:
    """The figures of the service at a port of this machine. Raises OSError without an answer in time."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=timeout_s) as answer:
        text: str = answer.read().decode()
        return text


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _main() -> None:
    ports = dict(zip(SERVICES, _free_ports(len(SERVICES)), strict=True))
    meant = {f"HEADRACE_{service.upper()}_METRICS_PORT": str(port) for service, port in ports.items()}
    up = [sys.executable, "-m", "headrace_cli", "up", "--port", "0", "--node", "alpha:cpu=2,memory=2G"]
    with tempfile.TemporaryDirectory(prefix="hr-") as state:
        environment = {**os.environ, **meant, "HEADRACE_STATE": state}
        with subprocess.Popen(up, env=environment, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if re.search("headrace is ready", line):
                    break
            run = [sys.executable, "-m", "headrace_cli", "run", "--wait", "--", "true"]
            subprocess.run(run, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            print(metrics_page({service: scrape(port) for service, port in ports.items()}), end="")
            running.terminate()
            running.stdout.read()


if __name__ == "__main__":
    _main()
