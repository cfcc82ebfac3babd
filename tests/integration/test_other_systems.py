"""`headrace` where it does not run: one sentence that says what would do, and no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Modules that the commands import and that Windows lacks.
MISSING = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")


@pytest.mark.parametrize(
    ("platform", "missing", "said"),
    [
        ("darwin", (), "this is macOS: use a host or a virtual machine with Linux.\n"),
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
