"""Split snapshots into parts and put them together again, for every publisher and every reader.

Pure. A publisher keeps the newest items. Each `advance` yields the parts of one version, and each part names the version it builds on. A
reader applies a version only when all parts of the version have arrived and the version builds on the version that the reader has.
Otherwise the reader knows that it needs the whole snapshot. Parts may arrive twice, late or not at all: the reader always holds one
complete version.
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

#: Upper bound in bytes of the items and removed keys in a part, without the frame. A larger item gets a part of its own. Readers decode a
#: part in one piece; for a part of this size that takes 3 ms.
_PART_BYTES = 64 * 1024
#: Bytes reserved for the fields of a part other than its frame, items and removed keys.
_ENVELOPE_BYTES = 1024
_encode = msgspec.msgpack.Encoder().encode
#: Largest number of whole snapshots that a publisher keeps for readers that do not have all pages yet.
_MOST_WHOLES = 4
#: Number of versions after which a kept whole snapshot may be dropped, although no reader has fetched all its pages.
_GIVEN_UP = 1_000
#: Largest number of versions that a reader holds back because an earlier version is missing.
_MOST_AHEAD = 64


class SnapshotPublisher(Generic[Item, Frame]):
    """Publishes the versions of a snapshot, and holds all items of the newest version.

    `part_type` is `SharePart` or `UsagePart`, and `key` returns the key of an item. `moved` returns the difference between an old and a new
    item, or None if the difference cannot be sent instead of the item.
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
        #: Encoded pages of whole snapshots that readers may be fetching, by version.
        self._wholes: dict[Version, list[bytes]] = {}
        #: Versions of whole snapshots that a reader has fetched to the end, oldest first.
        self._read: dict[Version, None] = {}

    def advance(self, frame: Frame, changed: Iterable[Item], removed: Iterable[str] = ()) -> list[bytes]:
        """Make the next version. Return its encoded parts, to be published in this order.

        An item equal to its predecessor is left out. A key that is both removed and changed counts as changed. If a key occurs
        twice in `changed`, the later item counts.
        """
        base = self.version
        self.version = base.next()
        self.frame = frame
        gone = [key for key in removed if self.items.pop(key, None) is not None]
        different: list[Item] = []
        all_moved: list[MovedShare] = []
        # Only the last item of each key is kept. A moved share is relative to the item of the previous version, and never to an earlier
        # item in `changed`.
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
        """Return a page of the whole snapshot that the request names, or the first page of the newest whole snapshot.

        A whole snapshot is kept until a reader has fetched its last page. A reader that begins meanwhile gets a whole snapshot of the
        newest version. If `_MOST_WHOLES` whole snapshots are kept already, the reader gets the newest of these.
        """
        version = request.version if request.version in self._wholes else self._whole_to_read()
        pages = self._wholes[version]
        place = request.part if version == request.version and request.part < len(pages) else 0
        if place + 1 == len(pages):
            self._read[version] = None
        return pages[place]

    def _whole_to_read(self) -> Version:
        """Return the version of the whole snapshot that a new reader gets.

        It is the newest version, or an older version while `_MOST_WHOLES` older whole snapshots must be kept.
        """
        if self.version not in self._wholes:
            if len(self._wholes) >= _MOST_WHOLES:
                self._forget_whole()
            if len(self._wholes) < _MOST_WHOLES:
                self._wholes[self.version] = self._cut(None, list(self.items.values()), [])
        return max(self._wholes)

    def _forget_whole(self) -> None:
        """Drop one whole snapshot, if possible.

        Drop the whole snapshot that a reader has fetched to the end first. If there is none, drop the oldest, provided it is at least
        `_GIVEN_UP` versions old.
        """
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
    """A change of a reader's items: keys of new or changed items, and keys of removed items. No key is in both sets."""

    version: Version
    changed: frozenset[str]
    removed: frozenset[str]
    #: True if a whole snapshot replaced everything.
    whole: bool


class _Gathering(Generic[Item, Frame]):
    """Parts of one version that is not complete yet."""

    def __init__(self, first: Part[Item, Frame]) -> None:
        self.base = first.builds_on
        self.parts: dict[int, Part[Item, Frame]] = {}
        #: Items of each part by their keys. They are filled in as each part arrives, so that less work is left when the version is
        #: complete.
        self.items: dict[int, dict[str, Item]] = {}
        #: Numbers of the parts whose moved items are not in `items` yet.
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
        """Apply the moved figures to `items`. Return False if `items` lacks an element that has moved figures.

        `items` are the items of the version that this version builds on.
        """
        known = True
        for number in self.unmoved:
            made = {one.key: one.applied(items[one.key]) for one in self.parts[number].moved if one.key in items}
            self.items[number].update(cast("dict[str, Item]", made))
            known = known and len(made) == len(self.parts[number].moved)
        self.unmoved.clear()
        return known


class SnapshotReader(Generic[Item, Frame]):
    """Puts versions of a snapshot together from their parts. `needs_whole` is true until the first whole snapshot, and after every gap."""

    def __init__(self, tree: TreeName, frame: Frame, key: Callable[[Item], str]) -> None:
        self._tree = tree
        self._key = key
        self.version = NEVER
        self.frame = frame
        self.items: dict[str, Item] = {}
        self.needs_whole = True
        self._gathering: dict[tuple[Version, bool], _Gathering[Item, Frame]] = {}
        self._ahead: dict[Version, tuple[Version, _Gathering[Item, Frame]]] = {}
        #: True if a part moved an item that the reader does not have. No publisher sends such a part.
        self._is_defective = False

    def on_part(self, part: Part[Item, Frame]) -> Applied | None:
        """Take one part, published or fetched as a page. Return the changes if the part completes one or more versions, else None."""
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
        # Use `difference`: subtracting `self.items.keys()` with `-` would walk through all keys.
        gone = (removed | before).difference(self.items)
        there = frozenset(changed & self.items.keys() if removed else changed)
        return Applied(version=self.version, changed=there, removed=frozenset(gone), whole=whole)

    def _forget_oldest(self) -> None:
        while len(self._gathering) > _MOST_AHEAD:
            del self._gathering[min(self._gathering)]
