"""Every command line in the documentation is one that the command line takes, and some test types it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cyclopts import CycloptsError, MissingArgumentError

from docs.pictures.build import kept_pages
from headrace_cli.command_line import app
from headrace_cli.completion.synonyms import canonical
from headrace_cli.completion.table import read_table

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("services/*/README.md"), *kept_pages())
}
#: A line of a block that runs our program, whatever stands before its name.
LINE = re.compile(r"(?:\$ )?(?:\w+=\S+ )*(?:sudo )?(?:\S+/)?headrace (?P<words>.+)")
INLINE = re.compile(r"`(?:\w+=\S+ )*headrace ([^`]+)`")
#: Blocks that no test types from top to bottom, by page: the test that runs what they say, in its own way.
ELSEWHERE = {
    "docs/how-to/accounts-of-jobs.md": "tests/as_root/test_accounts.py",
    "docs/how-to/cluster.md": "tests/containers/test_stack.py",
    "docs/how-to/cluster-without-containers.md": "tests/as_root/test_cluster_under_systemd.py",
    "docs/how-to/console.md": "tests/browser/test_pages.py",
    "docs/how-to/containers-for-jobs.md": "tests/containers/test_job_images.py",
    "docs/how-to/export.md": "tests/integration/test_export.py",
    "docs/how-to/gpus.md": "tests/acceptance/test_gpus.py",
    "docs/how-to/groups.md": "tests/integration/test_login_groups.py",
    "docs/how-to/hosts.md": "tests/acceptance/test_hosts.py",
    "docs/how-to/http-api.md": "tests/acceptance/test_web.py",
    "docs/how-to/integral-guarantees.md": "tests/acceptance/test_docs_integral.py",
    "docs/how-to/interactive.md": "tests/acceptance/test_interactive.py",
    "docs/how-to/maintenance.md": "tests/acceptance/test_nodes.py",
    "docs/how-to/notifications.md": "tests/integration/test_notify.py",
    "docs/how-to/people.md": "tests/acceptance/test_people.py",
    "docs/how-to/upgrade.md": "tests/containers/test_backup.py",
    "docs/how-to/watch.md": "tests/acceptance/test_cli_top.py",
    "docs/reference/jobs.md": "tests/acceptance/test_interruptible.py",
    "docs/why/real-workloads.md": "docs/generate/real_workloads.py",
}
#: Commands that are no commands of people: the scripts that `headrace completion` prints use it.
FOR_SHELLS = "complete "
#: The implicit beginning of every test of a page.
RUNS_UP = re.compile(r"(up|demo)\b")


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)


def in_blocks(text: str, *, console: bool) -> list[str]:
    """The words behind `headrace` of each such line, of blocks that are to be typed or of all others."""
    lines = [line for kind, block in blocks(text) if (kind == "console") is console for line in block.splitlines()]
    return [found["words"] for line in lines if (found := LINE.fullmatch(line))]


def in_sentences(text: str) -> list[str]:
    return INLINE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def parse(command: str) -> None:
    """Reads the words as `headrace` does, to the end of its own command. Raises what is wrong with them."""
    words = re.split(r" [|>] | && ", command, maxsplit=1)[0]
    words = re.sub(r" --spec \S+\.yaml", "", words)  # the files that pages make are not there, and are read at once
    app.parse_args(canonical(read_table(), shlex.split(words, comments=True)), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_line_of_the_page_is_one(page: str) -> None:
    for command in in_blocks(PAGES[page], console=True) + in_blocks(PAGES[page], console=False):
        if not command.rstrip().endswith("# no usable command line"):
            parse(command)
    for command in in_sentences(PAGES[page]):
        try:
            if not command.startswith(FOR_SHELLS):
                parse(command)
        except MissingArgumentError:  # it names a command and not a use of it
            pass
        except CycloptsError as error:
            raise AssertionError(f"{page}: `headrace {command}`: {error}") from error


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if in_blocks(text, console=True)])
def test_a_test_types_what_stands_behind_the_dollars_of_the_page(page: str) -> None:
    tests = [path.read_text() for path in (ROOT / "tests" / "acceptance").glob("*.py")]

    # As a path, or in parts: `"how-to" / "pools.md"`.
    named = re.compile('[/" ]+'.join(map(re.escape, Path(page).parts[-2:])))
    assert any(named.search(text) and "typed" in text for text in tests), f"no test types {page}"


def test_the_readme_is_read_at_a_glance() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 60


def test_lines_without_a_dollar_are_run_by_the_test_that_is_named() -> None:
    others = {
        page
        for page, text in PAGES.items()
        if any(not RUNS_UP.match(command) for command in in_blocks(text, console=False))
    }

    assert others == set(ELSEWHERE)
    for page, test in ELSEWHERE.items():
        assert (ROOT / test).exists(), f"{page} says that {test} runs it"
