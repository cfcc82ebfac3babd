"""Snapshots cut into parts and put together again, for every publisher and reader.

Pure. A publisher keeps the newest items. Each `advance` yields the parts of one version, each naming the version it builds on.
A reader applies a version only when all its parts are there and it builds on what the reader has. Otherwise it knows that it
needs the whole. Parts may come twice, late or not at all: what the reader holds is always some version, complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Generic, TypeVar, cast

import msgspec

from headrace.ids import TreeName
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, encode, runs_of_bytes
from headrace.wire.snapshots import MovedShare, Part, WholeRequest
from headrace.wire.version import NEVER, Term, Version

Item = TypeVar("Item", bound=msgspec.Struct)
Frame = TypeVar("Frame", bound=msgspec.Struct)

#: Items and removed keys in a part; the frame comes on top, and a larger item has a part of its own. Readers decode a part in one
#: piece, which takes 3 ms.
_PART_BYTES = 64 * 1024
#: What a part holds beside its frame, items and removed keys.
_ENVELOPE_BYTES = 1024
_encode = msgspec.msgpack.Encoder().encode
#: Wholes that a publisher keeps for readers that have not got all pages yet.
_MOST_WHOLES = 4
#: A reader that has not got all pages after so many versions got none lately.
_GIVEN_UP = 1_000
#: Versions that a reader holds back because one between is missing.
_MOST_AHEAD = 64


class SnapshotPublisher(Generic[Item, Frame]):
    """The publishing side: holds the newest version whole.

    `part_type` is `SharePart` or `UsagePart`, and `key` names an item. `moved` tells of an item before and the one after how to make
    the one of the other, None where that is not worth it.
    """

    def __init__(
        self,
        part_type: Callable[..., msgspec.Struct],
        tree: TreeName,
        term: Term,
        frame: Frame,
        key: Callable[[Item], str],
        moved: Callable[[Item, Item], MovedShare | None] | None = None,
    ) -> None:
        self._part_type = part_type
        self._tree = tree
        self._key = key
        self._moved = moved
        self.version = Version(term, 0)
        self.frame = frame
        self.items: dict[str, Item] = {}
        #: Pages of wholes that readers may be at, by version, and which of them were read to the end, oldest first.
        self._wholes: dict[Version, list[bytes]] = {}
        self._read: dict[Version, None] = {}

    def advance(self, frame: Frame, changed: Iterable[Item], removed: Iterable[str] = ()) -> list[bytes]:
        """The next version: encoded parts, ready to publish in order.

        An item equal to the one before is left out. One that is both removed and changed is there, and of two of one key the later.
        """
        base = self.version
        self.version = base.next()
        self.frame = frame
        gone = [key for key in removed if self.items.pop(key, None) is not None]
        different: list[Item] = []
        all_moved: list[MovedShare] = []
        # Of each key one alone: what moved is told by what it was in the version before.
        for key, item in {self._key(item): item for item in changed}.items():
            before = self.items.get(key)
            if before == item:
                continue
            self.items[key] = item
            moved = self._moved(before, item) if before is not None and self._moved is not None else None
            if moved is None:
                different.append(item)
            else:
                all_moved.append(moved)
        return self._cut(base, different, gone, all_moved)

    def page(self, request: WholeRequest) -> bytes:
        """A page of the whole that the request names, or the first page of the newest if there is room.

        A reader keeps its whole until it has every page: others that ask meanwhile get one of their own, up to `_MOST_WHOLES`.
        """
        version = request.version if request.version in self._wholes else self._whole_to_read()
        pages = self._wholes[version]
        place = request.part if version == request.version and request.part < len(pages) else 0
        if place + 1 == len(pages):
            self._read[version] = None
        return pages[place]

    def _whole_to_read(self) -> Version:
        """The version of the newest whole, or of an older one if too many are kept. Some reader ends then."""
        if self.version not in self._wholes:
            if len(self._wholes) >= _MOST_WHOLES:
                self._forget_whole()
            if len(self._wholes) < _MOST_WHOLES:
                self._wholes[self.version] = self._cut(None, list(self.items.values()), [])
        return max(self._wholes)

    def _forget_whole(self) -> None:
        """Forgets the oldest whole that was read to its end, or one that its reader has given up."""
        oldest = min(self._wholes)
        gone = next(iter(self._read), None)
        if gone is None and oldest.epoch + _GIVEN_UP <= self.version.epoch:
            gone = oldest
        if gone is not None:
            self._read.pop(gone, None)
            del self._wholes[gone]

    def _cut(
        self, base: Version | None, items: list[Item], removed: list[str], moved: Sequence[MovedShare] = ()
    ) -> list[bytes]:
        fields: dict[str, Sequence[object]] = {"removed": removed, "items": items, "moved": moved}
        encoded = [_encode(one) for contents in fields.values() for one in contents]
        places = dict(zip(fields, pairwise(accumulate(map(len, fields.values()), initial=0)), strict=True))
        room = min(_PART_BYTES, LARGEST_MESSAGE_BYTES - len(_encode(self.frame)) - _ENVELOPE_BYTES)
        runs = list(runs_of_bytes(encoded, room)) or [[]]
        parts: list[bytes] = []
        end = 0
        for number, run in enumerate(runs):
            begin, end = end, end + len(run)
            part = self._part_type(
                tree=self._tree,
                version=self.version,
                base=self.version if moved else base,
                part=number,
                parts=len(runs),
                frame=self.frame,
                **{
                    field: list(map(msgspec.Raw, encoded[max(begin, first) : min(end, last)]))
                    for field, (first, last) in places.items()
                },
                moved_from=base if moved else None,
            )
            parts.append(encode(part))
        return parts


class Applied(msgspec.Struct, frozen=True):
    """The change of a part at a reader: names whose items are new, different or gone. No name is in both."""

    version: Version
    changed: frozenset[str]
    removed: frozenset[str]
    #: Everything was replaced.
    whole: bool


class _Gathering(Generic[Item, Frame]):
    """Parts of one version that is not complete yet."""

    def __init__(self, first: Part[Item, Frame]) -> None:
        self.base = first.builds_on
        self.parts: dict[int, Part[Item, Frame]] = {}
        #: Of each part, by their keys: what can be done as parts come is not left for the moment when all are swapped in.
        self.items: dict[int, dict[str, Item]] = {}
        #: Numbers of parts of which the items that moved are not among these yet.
        self.unmoved: set[int] = set()
        self.count = first.parts

    def add(self, part: Part[Item, Frame], key: Callable[[Item], str]) -> bool:
        if part.parts == self.count and part.part < self.count:
            self.parts[part.part] = part
            self.items[part.part] = {key(item): item for item in part.items}
            if part.moved:
                self.unmoved.add(part.part)
        return len(self.parts) == self.count

    def move(self, items: Mapping[str, Any]) -> bool:
        """Makes the items that moved of those of the version that it builds on. True if none of these was missing."""
        known = True
        for number in self.unmoved:
            made = {one.key: one.applied(items[one.key]) for one in self.parts[number].moved if one.key in items}
            self.items[number].update(cast("dict[str, Item]", made))
            known = known and len(made) == len(self.parts[number].moved)
        self.unmoved.clear()
        return known


class SnapshotReader(Generic[Item, Frame]):
    """The reading side. `needs_whole` is true until the first whole and after every gap."""

    def __init__(self, tree: TreeName, frame: Frame, key: Callable[[Item], str]) -> None:
        self._tree = tree
        self._key = key
        self.version = NEVER
        self.frame = frame
        self.items: dict[str, Item] = {}
        self.needs_whole = True
        self._gathering: dict[tuple[Version, bool], _Gathering[Item, Frame]] = {}
        self._ahead: dict[Version, tuple[Version, _Gathering[Item, Frame]]] = {}
        #: True if an item is said to have moved that is not there, which no publisher says.
        self._is_defective = False

    def on_part(self, part: Part[Item, Frame]) -> Applied | None:
        """Takes one part, published or as a page. Returns what changed when a version (or several) became complete."""
        if part.tree != self._tree or (part.version <= self.version and self.version != NEVER):
            return None
        place = (part.version, part.base is None)
        gathering = self._gathering.get(place)
        if gathering is None:
            gathering = self._gathering[place] = _Gathering(part)
            self._forget_oldest()
        is_complete = gathering.add(part, self._key)
        if gathering.base == self.version:
            self._is_defective |= not gathering.move(self.items)
        if not is_complete:
            return None
        del self._gathering[place]
        if gathering.base is not None and (gathering.base != self.version or self.needs_whole):
            self._ahead[gathering.base] = (part.version, gathering)
            while len(self._ahead) > _MOST_AHEAD:
                del self._ahead[min(self._ahead)]
            self.needs_whole = True
            return None
        return self._apply(part.version, gathering)

    def _apply(self, version: Version, gathering: _Gathering[Item, Frame]) -> Applied:
        whole = gathering.base is None
        before = frozenset(self.items) if whole else frozenset()
        changed: set[str] = set()
        removed: set[str] = set()
        if whole:
            self.items = {}
        steps = [(version, gathering)]
        while steps:
            at, step = steps.pop()
            self._is_defective |= not step.move(self.items)
            for number in range(step.count):
                for name in step.parts[number].removed:
                    self.items.pop(name, None)
                    removed.add(name)
                self.items.update(step.items[number])
                changed.update(step.items[number])
            self.version = at
            self.frame = step.parts[0].frame
            following = self._ahead.pop(at, None)
            if following is not None:
                steps.append(following)
        self.needs_whole, self._is_defective = self._is_defective and not whole, False
        self._ahead = {base: held for base, held in self._ahead.items() if base > self.version}
        self._gathering = {place: held for place, held in self._gathering.items() if place[0] > self.version}
        # A set less the keys of a map would walk through them all.
        gone = (removed | before).difference(self.items)
        there = frozenset(changed & self.items.keys() if removed else changed)
        return Applied(version=self.version, changed=there, removed=frozenset(gone), whole=whole)

    def _forget_oldest(self) -> None:
        while len(self._gathering) > _MOST_AHEAD:
            del self._gathering[min(self._gathering)]
