"""Clients of a cluster that run for ever: `headrace notify`, and `headrace export operations --follow`.

Like a service, each consumer has a folder of its own in the folder of the cluster, with its login, its files and its state. It logs in
under a user name of its own, sees what everybody sees, and may change nothing.
"""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Final

from headrace.ids import UserName

#: File name of the rules of `headrace notify`.
RULES_FILE: Final = "rules.yaml"
#: File name of the variables of a consumer's environment, such as passwords of targets. The file may be missing.
VARIABLES_FILE: Final = "environment"


class Consumer(enum.StrEnum):
    """The consumers. The value is the name of the consumer's folder and of its command."""

    NOTIFY = "notify"
    EXPORT = "export"

    @property
    def user(self) -> UserName:
        """The user name under which the consumer is logged in."""
        return UserName(f"headrace-{self.value}")

    def command(self, folder: Path) -> list[str]:
        """Return the command that runs the consumer with the files of this folder."""
        if self is Consumer.NOTIFY:
            words = ["notify", str(folder / RULES_FILE), "--position", str(folder / "position")]
        else:
            words = ["export", "operations", str(folder / "ended.jsonl"), "--follow"]
        return [sys.executable, "-m", "headrace_cli", *words, "--state", str(folder)]
