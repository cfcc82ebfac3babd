"""Takes the pictures of docs/how-to/console.md from a console that shows a real Headrace.

    python -m docs.pictures.console

It takes a minute, and needs what `make test-browser` installs.
"""

from __future__ import annotations

import io
import shutil
import time
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.acceptance.test_web import a_web
from tests.browser.console import Console
from tests.support.headrace_up import Up

__all__ = ["FOLDER", "PICTURES", "main"]

FOLDER: Final = Path(__file__).parents[1] / "how-to" / "console"
#: The pictures, each with the address of its page.
PICTURES: Final = {"now": "/", "pool": "/pools/vision", "operation": "/operations/train-7"}
_NODES: Final = tuple(f"node-{number}:cpu=8,memory=16G" for number in range(1, 5))
_SIZE: Final = {"width": 1120, "height": 860}
_COLOURS: Final = 64
#: Time for which operations run before the pictures, so that there is a course to draw.
_COURSE_S: Final = 40


def main() -> None:
    """Start operations of three teams, wait, and take the pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with Up(nodes=_NODES) as up, a_web(up) as web, sync_playwright() as playwright:
        _work(up)
        time.sleep(_COURSE_S)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        console = Console(browser.new_page(viewport=_SIZE), web)
        console.enter()
        FOLDER.mkdir(exist_ok=True)
        for name, address in PICTURES.items():
            console.open(address)
            time.sleep(2)
            taken = Image.open(io.BytesIO(console.page.screenshot()))
            taken.convert("RGB").quantize(_COLOURS).save(FOLDER / f"{name}.png", optimize=True)
        browser.close()


def _work(up: Up) -> None:
    """The operations of a vision team with a guarantee, of a language team, and of people who try things."""
    up.run("pool", "create", "research", "--weight", "3", "--guarantee", "cpu=16")
    up.run("pool", "create", "vision", "--parent", "research", "--guarantee", "cpu=12")
    up.run("pool", "create", "language", "--parent", "research")
    up.run("pool", "create", "adhoc")
    for pool, name, jobs, (cpu, memory), seconds in (
        ("vision", "train-7", 40, ("2", "1G"), 25),
        ("vision", "evaluate", 8, ("1", "512M"), 60),
        ("language", "tokenize", 60, ("1", "512M"), 30),
        ("adhoc", "notebook", 12, ("1", "256M"), 90),
        ("adhoc", "sweep", 30, ("2", "512M"), 40),
    ):
        command = f"sleep {seconds}; exit $(( HEADRACE_JOB_INDEX % 13 == 12 ))"
        options = ("--pool", pool, "--id", name, "--jobs", str(jobs), "--cpu", cpu, "--memory", memory)
        up.run("run", *options, "--", "sh", "-c", command)


if __name__ == "__main__":
    main()
