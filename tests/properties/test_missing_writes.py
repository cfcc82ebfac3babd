"""A mirror that may lack a write is never believed to have it, whatever is late, out of order, repeated or lost."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.bus import Entry, HeardWrites
from headrace_admission.missing_writes import MissingWrites
from tests.support.effort import few_or_many

#: Seconds that the servers take at most to decide, and the mirror at most to follow, in steps of up to 3 s.
LATE_S = 3.0


class Bucket:
    """A bucket with its writers, a mirror, and what a process hears of the writes."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now_s = 100.0
        self.sequence = 0
        #: By key, its newest entry, or the revision of the marker of a deleted key.
        self.newest: dict[str, Entry | int] = {}
        #: All that was stored, in order: its time, its key, and the entry or None for a marker.
        self.stored: list[tuple[float, str, Entry | None]] = []
        self.mirrored = 0
        self.mirror: dict[str, Entry] = {}
        self.heard = HeardWrites()
        #: Attempts that the servers have not decided yet: time, key, named revision, and whether the key is deleted.
        self.undecided: list[tuple[float, str, int, bool]] = []
        self.missing = MissingWrites()
        self.missing.listens()

    def revision(self, key: str) -> int:
        newest = self.newest.get(key, 0)
        return newest if isinstance(newest, int) else newest.revision

    def attempt(self) -> None:
        """A write is tried, by a writer that knows the key or by one that is mistaken. Whoever listens hears of it, perhaps again later."""
        key, random = random_key(self.random), self.random
        named = max(0, self.revision(key) - random.choice([0, 0, 0, 1, 2]))
        self.undecided.append((self.now_s, key, named, random.random() < 0.2))
        fate = random.random()
        if fate < 0.8:
            for _ in range(random.choice([1, 1, 2])):
                self.hear(key, named)
        elif fate < 0.9:
            self.heard.unclear += 1  # The word was lost with the connection, or named no revision.
        else:
            self.hear(key, named)
            self.heard.unclear += 1

    def hear(self, key: str, named: int) -> None:
        self.heard.named[key] = max(named, self.heard.named.get(key, 0))

    def decide(self) -> None:
        """The servers decide on an attempt, in any order."""
        if self.undecided:
            self.decide_on(self.random.choice(self.undecided))

    def decide_on(self, attempt: tuple[float, str, int, bool]) -> None:
        self.undecided.remove(attempt)
        _, key, named, deletes = attempt
        if named == self.revision(key):
            self.sequence += 1
            entry = None if deletes else Entry(key=key, value=b"", revision=self.sequence)
            self.newest[key] = self.sequence if entry is None else entry
            self.stored.append((self.now_s, key, entry))

    def follow(self, count: int) -> None:
        for _, key, entry in self.stored[self.mirrored : self.mirrored + count]:
            self.mirror.pop(key, None)
            if entry is not None:
                self.mirror[key] = entry
        self.mirrored = min(len(self.stored), self.mirrored + count)

    def step(self) -> None:
        random = self.random
        what = random.choice(["attempt", "attempt", "decide", "decide", "follow"])
        if what == "attempt":
            self.attempt()
        elif what == "decide":
            self.decide()
        else:
            self.follow(random.choice([1, 2, 99]))
        self.now_s += random.choice([0.0, 0.001, 0.001, 0.5, 3.0])
        # No server takes longer to decide, and the mirror is never further behind.
        for late in [each for each in self.undecided if each[0] <= self.now_s - LATE_S]:
            self.decide_on(late)
        self.follow(sum(at_s <= self.now_s - LATE_S for at_s, _, _ in self.stored[self.mirrored :]))


def random_key(random: Random) -> str:
    return random.choice("ab")


@settings(max_examples=few_or_many(200, 3_000), deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_while_the_mirror_lacks_a_write_that_was_heard_it_is_said_to_miss_some(random: Random) -> None:
    bucket = Bucket(random)
    for _ in range(40):
        bucket.step()
        if random.random() < 0.6:
            bucket.missing.note(bucket.heard, bucket.now_s)
            bucket.heard = HeardWrites()
            if not bucket.missing.some_from(bucket.mirror, bucket.now_s):
                assert bucket.mirrored == len(bucket.stored), "the mirror is believed, and lacks a write"


def test_a_mirror_that_has_what_was_heard_is_believed_at_once_and_one_that_has_not_after_a_while() -> None:
    missing = MissingWrites()
    assert missing.some_from({}, 1e9)
    missing.listens()
    assert not missing.some_from({}, 0.0)

    missing.note(HeardWrites({"a": 4, "b": 0}), 1.0)
    assert missing.some_from({"a": entry("a", 4), "b": entry("b", 9)}, 1.0)
    assert missing.some_from({"b": entry("b", 9)}, 12.9)
    assert not missing.some_from({"a": entry("a", 5)}, 2.0)

    missing.note(HeardWrites({"a": 5}), 3.0)
    missing.note(HeardWrites({"a": 3}), 4.0)
    assert missing.some_from({"a": entry("a", 5)}, 15.9)
    assert not missing.some_from({"a": entry("a", 5)}, 16.0)

    missing.note(HeardWrites(unclear=1), 20.0)
    assert missing.some_from({"a": entry("a", 99)}, 31.9)
    assert not missing.some_from({}, 32.0)


def entry(key: str, revision: int) -> Entry:
    return Entry(key=key, value=b"", revision=revision)
