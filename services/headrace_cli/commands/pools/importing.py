"""One `pool import`: the file that it reads, the changes that the file makes, and the question before the import removes much."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from headrace.client import Client
from headrace.errors import BadInput
from headrace.ids import PoolName
from headrace.resources import ZERO, Resources
from headrace.tree_file.pools import ConfiguredPool, TreeFile
from headrace.tree_file.problems import Problems
from headrace.tree_file.values import STDIN, read
from headrace.wire.pool_changes import PoolChange, PoolPlan, Remove, SetOptions
from headrace.wire.pools import PoolList
from headrace.wire.what_if import WhatIfAnswer
from headrace_cli.commands.pools.confirming import Confirming
from headrace_cli.commands.pools.files import changes_between, configured, described
from headrace_cli.yarn.allocation_file import AllocationFile, read_allocation_file
from headrace_cli.yarn.site_file import YarnSite, read_site
from headrace_cli.yarn.translation import imported
from headrace_cli.yarn.warnings import Warnings

_XML: Final = ".xml"


class Import(Protocol):
    """A file to import, after it was read."""

    #: Tree that the file names; empty: it names none.
    tree: str
    #: True if the file may contain percentages of the tree's resources.
    has_percentages: bool

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
            raise BadInput.because(
                "--yarn-site",
                f"{path} is not a fair-scheduler.xml. Only a fair-scheduler.xml can be imported together with {yarn_site}",
            )
        return _Pools(described(data, path))
    if path == yarn_site == STDIN:
        raise BadInput.because(
            "--yarn-site", "standard input can be read only once. Name a file for --yarn-site or for the allocations"
        )
    warnings = Warnings(path)
    file = read_allocation_file(data, problems, warnings)
    site: YarnSite | None = None
    if yarn_site is not None:
        of_site, said = Problems(yarn_site), Warnings(yarn_site)
        site = read_site(read(yarn_site, of_site), of_site, said)
        warnings.found += said.found
    # Translate the files once only to find problems with the rules, so that they are reported before the first request. The result is
    # dropped.
    imported(file, site, ZERO, problems, Warnings(path))
    return _Queues(file, site, warnings)


class _Pools:
    has_percentages = False

    def __init__(self, file: TreeFile) -> None:
        self._file = file
        self.tree = file.tree

    def changes(
        self, before: Sequence[ConfiguredPool], total: Resources, *, keep: bool
    ) -> tuple[list[PoolChange], list[str]]:
        return changes_between(before, self._file, keep=keep), list(self._file.ignored)


class _Queues:
    tree = ""
    has_percentages = True

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


#: Upper bound of the pools that a question names.
_MOST_NAMED = 10


class Removals(NamedTuple):
    """The pools that an import removes."""

    removed: list[PoolName]
    #: Number of configured pools in the tree.
    configured: int
    #: Number of operations in each removed pool that is in use. Operations in the ephemeral pools that this pool made for users count too.
    in_use: dict[PoolName, int]

    @staticmethod
    def of(changes: Sequence[PoolChange], listed: PoolList) -> Removals:
        """Return the removals among the changes of a tree."""
        removed = [change.name for change in changes if isinstance(change, Remove)]
        views, counts = {pool.name: pool for pool in listed.pools}, Counter[PoolName]()
        for pool in listed.pools:
            # Operations in a user's ephemeral pool count for the pool that made the ephemeral pool.
            home = pool
            while home.ephemeral and home.parent in views:
                home = views[home.parent]
            counts[home.name] += pool.pool_operation_count
        in_use = {name: counts[name] for name in removed if counts[name]}
        return Removals(removed, len(configured(listed)), in_use)

    @property
    def are_asked_about(self) -> bool:
        """True if the import must be confirmed: a removed pool is in use, or more than half of the pools are removed."""
        return bool(self.in_use) or 2 * len(self.removed) > self.configured

    def words(self) -> str:
        """Return the removals in words, for a question or a warning."""
        more = f" and {len(self.removed) - _MOST_NAMED} more" if len(self.removed) > _MOST_NAMED else ""
        said = (
            f"{len(self.removed)} of {self.configured} pools are removed: {', '.join(self.removed[:_MOST_NAMED])}{more}"
        )
        if not self.in_use:
            return said
        count = sum(self.in_use.values())
        operations = "1 operation continues" if count == 1 else f"{count} operations continue"
        return f"{said}; {operations} in ephemeral pools of these names"

    def allowing_use(self, changes: Sequence[PoolChange]) -> list[PoolChange]:
        """Return the changes with permission to remove pools that are in use."""
        return [
            msgspec.structs.replace(change, in_use=True)
            if isinstance(change, Remove) and change.name in self.in_use
            else change
            for change in changes
        ]


class Importing:
    """An import, whose request may be repeated after the user has confirmed it."""

    def __init__(self, file: str, read: Import, *, keep: bool) -> None:
        self._file, self._read, self._keep = file, read, keep
        self._revision: int | None = None

    async def ask(self, client: Client, confirming: Confirming) -> PoolPlan | WhatIfAnswer:
        """Make the changes, provided that the tree has not changed since the first request. Raises `BadInput`."""
        if self._read.tree and self._read.tree != client.trees.own:
            raise BadInput(f"{self._file}: tree", self._read.tree, f"{client.trees.own}, the tree of this command")
        listed = await client.pools.list()
        self._revision = listed.revision if self._revision is None else self._revision
        changes, warnings = self._read.changes(configured(listed), listed.frame.total, keep=self._keep)
        removals = Removals.of(changes, listed)
        return await confirming.request(
            client,
            removals.allowing_use(changes),
            question=removals.words() if removals.are_asked_about else "",
            warnings=warnings,
            expected_revision=self._revision,
        )
