"""`headrace agent join --install` and its like where nobody is root: what they show, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.access.key_credential import KeyCredential
from headrace_cli.agent.token import JoinToken, new_user_key

pytestmark = pytest.mark.long

TOKEN = JoinToken("host-17", "tls://127.0.0.1:1", "", KeyCredential(jwt="a.b.c", seed=new_user_key().seed)).text()


def agent(*words: str, status: int = 0) -> str:
    """A command about the agent of this host, with a token on its standard input."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace_cli", "agent", *words],
        input=TOKEN,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_join_shows_the_units_that_it_would_write_and_asks_nobody(tmp_path: Path) -> None:
    shown = agent("join", "--token", "-", "--install", "--users", "same", "--dry-run", "--unit-folder", str(tmp_path))

    assert f"# {tmp_path}/headrace-agent-host-17.service\n" in shown
    assert "--config /var/lib/headrace/agent-host-17/settings.toml\n" in shown
    assert "--state /var/lib/headrace/agent-host-17 " in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--account", "nobody"), "--account, --unit-folder, --dry-run: these options need --install"),
        (("--dry-run",), "--account, --unit-folder, --dry-run: these options need --install"),
        (
            ("--install", "--no-start"),
            "--no-start: --no-start and --install cannot be combined",
        ),
    ],
)
def test_options_that_do_not_go_together_are_named(words: tuple[str, ...], said: str) -> None:
    assert said in agent("join", "--token", "-", *words, status=2)


def test_uninstalling_where_nothing_is_installed_changes_nothing_and_says_so(tmp_path: Path) -> None:
    assert f"no unit of node host-17 is in {tmp_path}" in agent("uninstall", "host-17", "--unit-folder", str(tmp_path))
    assert "node name: '../x' cannot be used" in agent("uninstall", "../x", status=2)


def test_settings_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('[agent]\nnode = "A b"\n')

    assert f"{tmp_path}/none: the settings file cannot be read: No such file" in agent(
        "install", "--config", str(tmp_path / "none"), status=2
    )
    dry = ("install", "--dry-run", "--config", str(tmp_path / "settings.toml"))
    assert "node name: 'A b' cannot be used" in agent(*dry, status=2)
