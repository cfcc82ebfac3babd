"""Files that `pool import` reads: files of `pool export`, and YARN's fair-scheduler.xml with its yarn-site.xml."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from headrace.errors import BadInput
from headrace.resources import ZERO, Resources
from headrace.tree_file.pools import ConfiguredPool, TreeFile
from headrace.tree_file.problems import Problems
from headrace.tree_file.values import STDIN, read
from headrace.wire.pool_changes import PoolChange, SetOptions
from headrace_cli.pools.files import changes_between, described
from headrace_cli.yarn.allocation_file import AllocationFile, read_allocation_file
from headrace_cli.yarn.site_file import YarnSite, read_site
from headrace_cli.yarn.translation import imported
from headrace_cli.yarn.warnings import Warnings

_XML: Final = ".xml"


class Import(Protocol):
    """A file to import, after it was read."""

    #: Tree that the file names; empty: it names none.
    tree: str

    def changes(
        self, before: Sequence[ConfiguredPool], total: Resources, *, keep: bool
    ) -> tuple[list[PoolChange], list[str]]:
        """Return the changes that make a tree match the file, and warnings.

        `before` are the configured pools of the tree, `total` its resources.
        """


def read_import(path: str, yarn_site: str | None) -> Import:
    """Read a file, or standard input for `-`, and the yarn-site.xml for it. Raises `UnusableFile`, `BadInput`."""
    problems = Problems(path)
    data = read(path, problems)
    if not _is_xml(path, data):
        if yarn_site is not None:
            raise BadInput("--yarn-site", yarn_site, f"a fair-scheduler.xml to import with it; {path} is not one")
        return _Pools(described(data, path))
    if path == yarn_site == STDIN:
        raise BadInput("--yarn-site", yarn_site, "another file: standard input can be read only once")
    warnings = Warnings(path)
    file = read_allocation_file(data, problems, warnings)
    site: YarnSite | None = None
    if yarn_site is not None:
        of_site, said = Problems(yarn_site), Warnings(yarn_site)
        site = read_site(read(yarn_site, of_site), of_site, said)
        warnings.found += said.found
    # Translate once now, so that problems with the rules are reported before the first request.
    imported(file, site, ZERO, problems, Warnings(path))
    return _Queues(file, site, warnings)


class _Pools:
    def __init__(self, file: TreeFile) -> None:
        self._file = file
        self.tree = file.tree

    def changes(
        self, before: Sequence[ConfiguredPool], total: Resources, *, keep: bool
    ) -> tuple[list[PoolChange], list[str]]:
        return changes_between(before, self._file, keep=keep), []


class _Queues:
    tree = ""

    def __init__(self, file: AllocationFile, site: YarnSite | None, warnings: Warnings) -> None:
        self._file = file
        self._site = site
        self._warnings = warnings

    def changes(
        self, before: Sequence[ConfiguredPool], total: Resources, *, keep: bool
    ) -> tuple[list[PoolChange], list[str]]:
        """Return the changes and warnings for YARN's files. Options of the tree that the files do not mention stay as they are."""
        warnings = Warnings(self._warnings.file)
        found = imported(self._file, self._site, total, Problems(warnings.file), warnings)
        changes = changes_between(before, TreeFile(found.pools), keep=keep)
        told = sorted(
            [*self._warnings.found, *warnings.found], key=lambda each: (each.file != warnings.file, each.line)
        )
        return [SetOptions(msgspec.json.encode(found.options)), *changes], [each.text() for each in told]


def _is_xml(path: str, data: bytes) -> bool:
    return path.endswith(_XML) or data.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"<"
