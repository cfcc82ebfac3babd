"""`headrace` on other systems. Where it does not run it says in one sentence what would do; on macOS clients run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.simulated_macos import AS_MACOS

#: Modules that the commands import and that Windows lacks.
MISSING = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")


@pytest.mark.parametrize(
    ("platform", "missing", "said"),
    [
        ("win32", MISSING, "this is Windows: use a host or a virtual machine with Linux, such as WSL 2.\n"),
        ("freebsd14", (), "this is freebsd14: use a host or a virtual machine with Linux.\n"),
    ],
)
@pytest.mark.parametrize("words", [("up",), ("--help",), ("run", "--", "true"), ()])
def test_every_command_says_in_one_sentence_that_it_needs_linux(
    platform: str, missing: tuple[str, ...], said: str, words: tuple[str, ...]
) -> None:
    # As the script `headrace` begins, on a Python that says it runs there.
    program = (
        f"import sys; sys.argv[1:] = {list(words)!r}; sys.platform = {platform!r}; sys.modules |= dict.fromkeys({missing!r})\n"
        "from headrace_cli.__main__ import main; sys.exit(main())"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"Headrace runs on Linux, and {said}"


LINUX_ONLY = [("up",), ("demo",), ("agent", "join", "--token", "-"), ("agent", "selftest"), ("cluster", "install", "x")]
#: Imports all that clients run, then types commands that need Linux.
CLIENTS = """
import pkgutil
for package in ("headrace.client", "headrace.executor", "headrace_cli"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
from headrace_cli.__main__ import main
for words in COMMANDS:
    sys.argv = ["headrace", *words]
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""


def test_clients_are_imported_on_macos_and_commands_that_need_linux_say_so() -> None:
    given = f"COMMANDS = {LINUX_ONLY!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", AS_MACOS + given + CLIENTS], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout.split()) == (0, ["4"] * len(LINUX_ONLY)), done.stderr
    for line, words in zip(done.stderr.splitlines(), LINUX_ONLY, strict=True):
        assert line.startswith(f"`headrace {words[0]}")
        assert "needs Linux, and this is macOS: use a host or a virtual machine with Linux" in line


def test_the_help_of_every_command_is_shown_on_macos() -> None:
    words = "sys.argv = ['headrace', 'agent', 'join', '--help']\nfrom headrace_cli.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", AS_MACOS + words], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Make this host a node" in done.stdout


@pytest.mark.parametrize("module", ["headrace_admission", "headrace_agent", "headrace_agent.runner"])
def test_a_process_of_headrace_says_on_macos_that_it_needs_linux(module: str) -> None:
    words = f"import runpy\nsys.argv = ['x']\nrunpy.run_module({module!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", AS_MACOS + words], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "needs Linux, and this is macOS" in done.stderr
    assert len(done.stderr.splitlines()) == 1
