"""Writes docs/reference/settings.md from the Structs of the settings: `make docs-reference`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from docs.generate.struct_fields import cell, own_fields
from headrace.runtime.settings import CommonSettings
from headrace_admission.settings import AdmissionSettings
from headrace_agent.settings import AgentSettings
from headrace_allocator.settings import AllocatorSettings
from headrace_fair_share.settings import FairShareSettings
from headrace_integral.settings import IntegralSettings

_SERVICES: Final[dict[str, type[CommonSettings]]] = {
    "admission": AdmissionSettings,
    "fair_share": FairShareSettings,
    "integral": IntegralSettings,
    "allocator": AllocatorSettings,
    "agent": AgentSettings,
}
_HEAD = """\
# Settings

A process reads its settings from the file that `--config` names and from environment variables. A variable takes precedence over the file.
The file is TOML: the table `[common]` applies to every service, and a table such as `[allocator]` to that service only.
The variable `HEADRACE_LOG_LEVEL` applies to every service, and `HEADRACE_ALLOCATOR_LOG_LEVEL` to the allocator only.
Times are written `30s` or `500ms`; a bare number is milliseconds.
A setting whose name ends in `_file` or `_folder` is a path. A relative path in the file starts from the folder of the
file; in a variable it starts from the working directory of the service.
An unknown key or an unusable value ends the process, with the place, the value and what is accepted.

`headrace up` writes these files itself. Options of pools and trees are not settings; they have [their own page](pools.md).
"""


def settings_page() -> str:
    """The page, from the settings of all services."""
    sections = ["\n## Every service\n", *_table(CommonSettings)]
    for service, kind in _SERVICES.items():
        sections += [f"\n## `[{service}]`\n", *_table(kind)]
    return _HEAD + "\n".join(sections) + "\n"


def _table(kind: type[CommonSettings]) -> Iterator[str]:
    rows = [
        f"| `{field.name}` | {f'`{cell(field.default)}`' if field.default else 'must be given'} | {cell(field.says)} |"
        for field in own_fields(kind)
    ]
    yield from (
        ["| setting | default | what it says |", "|---|---|---|", *rows]
        if rows
        else ["This service has no settings of its own."]
    )


if __name__ == "__main__":
    print(settings_page(), end="")
