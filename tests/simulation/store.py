"""What the simulated server keeps: streams of messages, with buckets as streams of their own. Synchronous; it knows no connection."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.bus import AppendRefused, BusError, Entry, LogEntry, WrongRevision

__all__ = ["Bucket", "Store", "Stored", "Stream"]


class Stored(msgspec.Struct, frozen=True):
    """One message of a stream."""

    sequence: int
    subject: str
    data: bytes
    at_ms: int
    is_deletion: bool = False

    def entry(self) -> Entry:
        """The same as an entry of a bucket."""
        return Entry(self.subject, self.data, self.sequence)


class Stream:
    """Messages in order of their sequences, which rise by one and are never given twice."""

    def __init__(self) -> None:
        self.messages: list[Stored] = []
        self.last_sequence = 0
        #: No more bytes than this together; further ones are refused.
        self.max_bytes: int | None = None

    @property
    def first_sequence(self) -> int:
        """The first message that is kept; one above the last where none is."""
        return self.messages[0].sequence if self.messages else self.last_sequence + 1

    def add(self, subject: str, data: bytes, at_ms: int, *, is_deletion: bool = False) -> Stored:
        """Keeps a message. Raises `BusError` where there is no room for it."""
        held = sum(len(message.data) for message in self.messages) if self.max_bytes is not None else 0
        if self.max_bytes is not None and held + len(data) > self.max_bytes:
            raise BusError("maximum bytes exceeded")
        self.last_sequence += 1
        stored = Stored(self.last_sequence, subject, data, at_ms, is_deletion)
        self.messages.append(stored)
        return stored

    def append(self, subject: str, data: bytes, at_ms: int, expected_last: int) -> int:
        """Adds right after `expected_last`. Raises `AppendRefused`."""
        if expected_last != self.last_sequence:
            raise AppendRefused(f"the last entry is {self.last_sequence}, not {expected_last}")
        return self.add(subject, data, at_ms).sequence

    def after(self, sequence: int) -> list[LogEntry]:
        """The messages behind a sequence."""
        return [LogEntry(each.sequence, each.data) for each in self.messages if each.sequence > sequence]

    def forget(self, up_to: int) -> None:
        """Removes messages up to a sequence and including it. The next one comes behind that sequence."""
        self.last_sequence = max(self.last_sequence, up_to)
        self.messages = [message for message in self.messages if message.sequence > up_to]

    def roll_back(self, messages: int) -> None:
        """Loses the newest messages, as a server does that wrote them to no disk: their sequences are given again."""
        if messages:
            self.last_sequence = max(0, self.last_sequence - messages)
            self.messages = [message for message in self.messages if message.sequence <= self.last_sequence]


class Bucket(Stream):
    """Keys with their newest values, as a stream with a subject for each key."""

    def __init__(self, history: int) -> None:
        super().__init__()
        self.history = history
        #: Rises when the bucket is made anew.
        self.life = 0
        #: Tries to write, also those that were refused: the key, and the revision that it must have.
        self.tried: list[tuple[str, int]] = []

    def get(self, key: str) -> Stored | None:
        """The newest message of a key, deletions included."""
        return next((each for each in reversed(self.messages) if each.subject == key), None)

    def entries(self) -> dict[str, Entry]:
        """The keys that there are, in the order of their last change."""
        newest: dict[str, Stored] = {}
        for message in self.messages:
            newest.pop(message.subject, None)
            newest[message.subject] = message
        return {key: stored.entry() for key, stored in newest.items() if not stored.is_deletion}

    def kept(self, key: str) -> list[Entry]:
        """The values of a key that are kept, oldest first."""
        return [each.entry() for each in self.messages if each.subject == key and not each.is_deletion]

    def purge(self, prefix: str) -> None:
        """Removes all messages of keys that begin so."""
        self.messages = [message for message in self.messages if not message.subject.startswith(prefix)]

    def write(self, key: str, data: bytes, at_ms: int, expected: int | None, *, is_deletion: bool = False) -> Stored:
        """Writes a key; `expected` is its newest revision, 0 for none or a deleted one. Raises `WrongRevision`."""
        known = self.get(key)
        have = known.sequence if known is not None else 0
        is_free = expected == 0 and (known is None or known.is_deletion)
        # As the real writers do, who name the revision of the marker of a deleted key, and of what they overwrite.
        self.tried.append((key, have if expected is None or is_free else expected))
        if expected is not None and not is_free and expected != have:
            raise WrongRevision(f"{key} was changed by another writer")
        stored = self.add(key, data, at_ms, is_deletion=is_deletion)
        own = [each.sequence for each in self.messages if each.subject == key]
        drop = set(own[: -self.history])
        self.messages = [message for message in self.messages if message.sequence not in drop]
        return stored


class Store:
    """All streams and buckets of a server; survives its crashes."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.buckets: dict[str, Bucket] = {}

    def stream(self, name: str) -> Stream:
        """The stream of that name, made where there is none."""
        return self.streams.setdefault(name, Stream())

    def bucket(self, name: str, history: int) -> Bucket:
        """The bucket of that name, made where there is none; its history never becomes shorter."""
        bucket = self.buckets.setdefault(name, Bucket(history))
        bucket.history = max(bucket.history, history)
        return bucket

    def lose_bucket(self, name: str) -> None:
        """Deletes a bucket with everything in it."""
        lost = self.buckets.pop(name, None)
        if lost is not None:
            self.buckets[name] = Bucket(lost.history)
            self.buckets[name].life = lost.life + 1

    def roll_back(self, names: Iterable[str], writes: int) -> None:
        """Loses the newest writes of these streams and buckets."""
        for name in names:
            for kept in (self.streams.get(name), self.buckets.get(name)):
                if kept is not None:
                    kept.roll_back(writes)
