"""The compose stack held against itself: what Prometheus scrapes, and the addresses that people and hosts get."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

import headrace
from headrace_cli.cluster.consumers import Consumer
from headrace_cli.notify.rules import RuleKind
from headrace_cli.notify.rules_file import read_rules
from tests.unit.test_docs_commands import parse

COMPOSE = Path(__file__).parents[2] / "compose"
STACK: dict[str, dict[str, Any]] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
HA = dict(
    line.split("=", 1) for line in (COMPOSE / "ha.env").read_text().splitlines() if line and not line.startswith("#")
)
#: Where the container of Prometheus has its configuration and its targets.
MOUNTED = "/etc/headrace/"


def filled_in(text: str, **variables: str) -> str:
    """A text of compose.yaml with its variables, as Compose puts them in."""
    known = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", lambda found: variables.get(found[1]) or found[2] or "", text)
    return known.replace("$$", "$")


def scraped(variables: dict[str, str]) -> set[str]:
    """The addresses that Prometheus scrapes with these variables."""
    mounts = {}
    for volume in STACK["prometheus"]["volumes"]:
        source, target = filled_in(volume, **variables).split(":")[:2]
        mounts[target] = COMPOSE / source
    configuration = yaml.safe_load((mounts[MOUNTED.rstrip("/")] / "prometheus.yml").read_text())
    groups = []
    for job in configuration["scrape_configs"]:
        groups += job.get("static_configs", [])
        for listed in job.get("file_sd_configs", []):
            for file in listed["files"]:
                groups += yaml.safe_load(mounts[file].read_text())
    return {target for group in groups for target in group["targets"]}


def serving(profiles: set[str]) -> set[str]:
    """The addresses at which processes of these profiles serve metrics."""
    found = set()
    for name, service in STACK.items():
        environment = service.get("environment", {})
        if "HEADRACE_METRICS_PORT" in environment and set(service.get("profiles", [])) <= profiles:
            found.add(f"{name}:{environment['HEADRACE_METRICS_PORT']}")
    return found


@pytest.mark.parametrize(("profiles", "variables"), [({"agents"}, {}), ({"agents", "ha"}, HA)])
def test_every_process_that_serves_metrics_is_scraped_in_every_profile(
    profiles: set[str], variables: dict[str, str]
) -> None:
    assert len(serving(profiles)) == (11 if "ha" in profiles else 7)
    assert scraped(variables) == serving(profiles)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "tls://127.0.0.1:4270"),
        ({"HEADRACE_HOST": "10.0.0.1", "HEADRACE_PORT": "14270"}, "tls://10.0.0.1:14270"),
        (HA, "tls://127.0.0.1:4270,tls://127.0.0.1:4271,tls://127.0.0.1:4272"),
        (
            HA | {"HEADRACE_HOST": "10.0.0.1", "HEADRACE_PORT_2": "14271", "HEADRACE_PORT_3": "14272"},
            "tls://10.0.0.1:4270,tls://10.0.0.1:14271,tls://10.0.0.1:14272",
        ),
    ],
)
def test_people_get_the_addresses_at_which_the_servers_are_published(
    tmp_path: Path, variables: dict[str, str], expected: str
) -> None:
    init = STACK["init"]
    assert init["entrypoint"][:2] == ["sh", "-ec"]
    script = filled_in(init["entrypoint"][2], **variables).replace("/cluster", str(tmp_path / "cluster"))
    (tmp_path / "headrace").write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace_cli "$@"\n')
    (tmp_path / "headrace").chmod(0o700)
    (tmp_path / "cluster" / "authority").mkdir(parents=True)
    web = tmp_path / "cluster" / "web"
    web.mkdir()
    path = f"{tmp_path}:/usr/bin:/bin"
    subprocess.run(["sh", "-ec", script, "init", *init["command"]], env={"PATH": path}, check=True, capture_output=True)

    endpoint = json.loads((tmp_path / "cluster" / "client" / "endpoint.json").read_text())
    assert endpoint["url"] == expected
    published = [
        filled_in(port, **variables).removesuffix(":4222")
        for name, service in STACK.items()
        if name in variables.get("HEADRACE_SERVERS", "nats").split(",")
        for port in service["ports"]
    ]
    assert [url.removeprefix("tls://") for url in endpoint["url"].split(",")] == published
    assert endpoint["user"] == "administrator"
    certificate = x509.load_pem_x509_certificate((web / "server.pem").read_bytes())
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    host = variables.get("HEADRACE_HOST", "127.0.0.1")
    assert named.get_values_for_type(x509.IPAddress) == [ip_address(host)]
    assert (web / "ca.pem").read_text() == (tmp_path / "cluster" / "client" / "ca.pem").read_text()
    assert not (web / "credential").exists()


@pytest.mark.parametrize("consumer", Consumer)
def test_a_consumer_runs_a_command_with_the_files_that_it_has(consumer: Consumer) -> None:
    service = STACK[consumer]
    program, *words = service["command"]
    assert (program, service["profiles"]) == ("headrace", [consumer])
    parse(shlex.join(words))
    [volume] = [each for each in map(filled_in, service["volumes"]) if f":/cluster/{consumer}" in each]
    if consumer.has_credential:
        assert service["environment"]["HEADRACE_CREDENTIAL_FILE"] == f"/cluster/{consumer}/credential"
    else:
        assert "HEADRACE_CREDENTIAL_FILE" not in service["environment"]
    # `cluster init` makes a credential wherever the folder is there.
    assert volume.removesuffix(":ro") in STACK["init"]["volumes"]


def test_the_rules_of_the_stack_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    service = STACK["notify"]
    [variables] = service["env_file"]
    for line in (COMPOSE / filled_in(variables)).read_text().splitlines():
        if not line.startswith("#"):
            monkeypatch.setenv(*line.split("=", 1))
    mounts = {target: source for source, target in (filled_in(each).split(":")[:2] for each in service["volumes"])}
    rules = Path(service["command"][2])
    found = read_rules(str(COMPOSE / mounts[str(rules.parent)] / rules.name))

    assert list(found.targets) == ["operators"]
    assert {rule.when for rule in found.rules} == set(RuleKind)


@pytest.mark.parametrize("file", ["Makefile", "compose/Dockerfile", "compose/compose.yaml", "docs/how-to/cluster.md"])
def test_the_image_has_the_version_of_the_package_wherever_it_is_named(file: str) -> None:
    text = (COMPOSE.parent / file).read_text()
    named = re.findall(r"(?:headrace:|ARG VERSION=)(\d+\.\d+\.\d+)", text)

    assert set(named) == {headrace.__version__}
