"""docs/how-to/cluster-without-containers.md on a host with a real systemd: from nothing to a job, and out again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.booted_systemd import SYSTEMD, BootedSystemd

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster-without-containers.md"
CLUSTER = "/srv/headrace/cluster"
CLIENT = f"--state {CLUSTER}/client"
SERVICES = ("admission", "fair-share", "integral", "allocator")
UNITS = [f"headrace-{name}.service" for name in ("nats", *SERVICES)]

pytestmark = pytest.mark.skipif(not SYSTEMD.exists(), reason="systemd is not installed")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[BootedSystemd]:
    made = BootedSystemd(tmp_path, "headrace.example")
    try:
        made.until_up()
        yield made
    finally:
        made.end()


def of_page(words: str) -> str:
    """The first command of the page that has these words."""
    blocks: list[str] = re.findall(r"^```\w*\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return next(line for block in blocks for line in block.splitlines() if words in line)


def is_served(host: BootedSystemd) -> bool:
    """True if each service has a leader."""
    return host.run(of_page("service list"), status=None).count(" leader ") == len(SERVICES)


def test_the_page_leads_from_nothing_to_a_job_and_out_again(host: BootedSystemd) -> None:
    host.run(of_page("tls init"))
    said = host.run(of_page("cluster init"))
    for words in ("useradd", "cluster install", "bus provision", "service list"):
        assert f"  {of_page(words)}\n" in said
        if words != "service list":
            host.run(of_page(words))
    host.until(lambda: is_served(host))

    assert host.run(f"systemctl is-enabled {' '.join(UNITS)}").split() == ["enabled"] * 5
    _sees_only_its_own_folder(host)
    _runs_a_job(host)
    _is_started_again(host)
    _is_watched(host)

    host.run(of_page("cluster uninstall"))
    assert host.run("pgrep --euid headrace --list-full", status=1) == ""
    assert "0 unit files" in host.run(f"systemctl list-unit-files {' '.join(UNITS)}", status=None)
    host.run(of_page("cluster install"))
    host.until(lambda: is_served(host))
    assert "host-17" in host.run(f"headrace node list {CLIENT}")


def _sees_only_its_own_folder(host: BootedSystemd) -> None:
    for unit, own in (("headrace-nats", "nats"), ("headrace-fair-share", "fair_share")):
        inside = f"nsenter --target {host.main_pid(unit)} --mount --root"
        assert host.run(f"{inside} ls {CLUSTER}").split() == [own]
        assert "Read-only file system" in host.run(f"{inside} touch {CLUSTER}/x", status=1)
        assert "Read-only file system" in host.run(f"{inside} touch /etc/x", status=1)
        assert f"{host.run('id -u headrace').strip()} " in host.run(f"stat --format='%u ' {CLUSTER}/{own}/*")
    assert host.run(f"stat --format='%U %a' {CLUSTER}/admission/credential").split() == ["headrace", "600"]
    assert host.run(f"stat --format='%U %a' {CLUSTER}/client/credential").split() == ["root", "600"]


def _is_watched(host: BootedSystemd) -> None:
    """Check that systemd shows what each process does, and replaces processes that hang."""
    shown = {unit: host.run(f"systemctl show --property=StatusText --value {unit}").strip() for unit in UNITS}
    assert shown["headrace-nats.service"] == "serves clients at port 4222"
    assert all(shown[unit].startswith("leads ") for unit in UNITS[1:]), shown
    assert "serves node host-17" in host.run("systemctl show --property=StatusText --value headrace-agent-host-17")
    units = ("headrace-nats", "headrace-allocator", "headrace-agent-host-17", "headrace-runner-host-17")
    for unit in units:
        drop_in = f"/run/systemd/system/{unit}.service.d"
        host.run(f"mkdir -p {drop_in} && printf '[Service]\\nWatchdogSec=3\\n' >{drop_in}/watchdog.conf")
    host.run(f"systemctl daemon-reload && systemctl restart {' '.join(units)}")
    host.until(lambda: is_served(host))
    frozen_pids = {unit: host.main_pid(unit) for unit in units}
    host.run(f"kill -STOP {' '.join(frozen_pids.values())}")
    for unit, frozen in frozen_pids.items():
        host.until(lambda unit=unit, frozen=frozen: host.main_pid(unit) not in ("0", frozen))  # type: ignore[misc]
        assert "Failed with result 'watchdog'" in host.run(f"journalctl --no-pager --unit {unit}")
    host.until(lambda: is_served(host))


def _runs_a_job(host: BootedSystemd) -> None:
    token = host.run(of_page("node token"))
    host.run("headrace agent join --token - --install --users agent", typed=token)
    done = host.run(f"headrace run {CLIENT} --wait --cwd=/ --memory 64M -- true")
    assert "1 of 1 jobs completed" in done
    assert f"{CLUSTER}/client/people/ada" in host.run(of_page("user add"))


def _is_started_again(host: BootedSystemd) -> None:
    for unit in ("headrace-allocator", "headrace-nats"):
        killed = host.main_pid(unit)
        host.run(f"kill -KILL {killed}")
        host.until(lambda unit=unit, killed=killed: host.main_pid(unit) not in ("0", killed))  # type: ignore[misc]
    host.until(lambda: is_served(host))
    host.run("systemctl reload headrace-nats")
    assert "nothing to change" in host.run(of_page("cluster install"))
