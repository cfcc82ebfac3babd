"""Clients of a cluster that run for ever: `headrace notify`, `headrace export operations --follow`, and `headrace web --listen`.

Like a service, each consumer has a folder of its own in the folder of the cluster, with its login, its files and its state. `notify` and
`export` are clients under a user name of their own: they see what everybody sees, and may change nothing. `web` has no credential, because
it acts with the tokens of the people who use it.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.ids import UserName
from headrace_cli.cluster.certificates import SERVER_FILES

#: File name of the rules of `headrace notify`.
RULES_FILE: Final = "rules.yaml"
#: File name of the variables of a consumer's environment, such as passwords of targets. The file may be missing.
VARIABLES_FILE: Final = "environment"
#: Address at which `headrace web` of a cluster listens. A drop-in of its unit may change it.
WEB_LISTEN: Final = "0.0.0.0:8040"


class Consumer(enum.StrEnum):
    """The consumers. The value is the name of the consumer's folder and of its command."""

    NOTIFY = "notify"
    EXPORT = "export"
    WEB = "web"

    @property
    def user(self) -> UserName:
        """The user name under which the consumer is logged in."""
        return UserName(f"headrace-{self.value}")

    @property
    def has_credential(self) -> bool:
        """True if it acts under its own user name."""
        return self is not Consumer.WEB

    @property
    def needed_files(self) -> Mapping[str, str]:
        """The files that must be put into its folder, each with the words that say what it is."""
        match self:
            case Consumer.NOTIFY:
                return {RULES_FILE: "the rules of notify (`headrace notify RULES --check` checks them)"}
            case Consumer.WEB:
                certificate, key = SERVER_FILES
                return {certificate: "a certificate for the name by which browsers reach this host", key: "its key"}
            case Consumer.EXPORT:
                return {}

    def command(self, folder: Path) -> list[str]:
        """Return the command that runs the consumer with the files of this folder."""
        if self is Consumer.NOTIFY:
            words = ["notify", str(folder / RULES_FILE), "--position", str(folder / "position")]
        elif self is Consumer.WEB:
            certificate, key = (str(folder / name) for name in SERVER_FILES)
            words = ["web", "--listen", WEB_LISTEN, "--certificate", certificate, "--key", key]
        else:
            words = ["export", "operations", str(folder / "ended.jsonl"), "--follow"]
        return [sys.executable, "-m", "headrace_cli", *words, "--state", str(folder)]
