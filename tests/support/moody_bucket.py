"""A bucket that does not always do what it should."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from headrace.bus import BusError, Entry, Mirror, WrongRevision

__all__ = ["MoodyBucket"]


class MoodyBucket:
    """A bucket in memory; raises `mood` at writes, before or after they took effect; `meddle` runs before each of them.

    With `fails_after` so many puts take effect and no more.
    """

    def __init__(self) -> None:
        self.kept: dict[str, Entry] = {}
        self.sequence = 0
        self.mood: BusError | None = None
        self.took_effect = False
        self.fails_after: int | None = None
        self.meddle: Callable[[], None] = lambda: None

    async def get(self, key: str) -> Entry | None:
        return self.kept.get(key)

    async def entries(self) -> dict[str, Entry]:
        return dict(self.kept)

    async def read(self, prefix: str, *, after: int = 0, batch_bytes: int | None = None) -> AsyncGenerator[Entry, None]:
        below = [each for key, each in self.kept.items() if key.startswith(f"{prefix}.")]
        for entry in sorted(below, key=lambda each: each.revision):
            if entry.revision > after:
                yield entry

    async def size_bytes(self) -> int:
        return sum(len(entry.value) for entry in self.kept.values())

    async def put(self, key: str, value: bytes) -> int:
        if self.fails_after is not None:
            self.fails_after -= 1
            if self.fails_after < 0:
                raise BusError("cut off")
        return self.write(key, value)

    async def purge(self, prefix: str) -> None:
        self.kept = {key: entry for key, entry in self.kept.items() if not key.startswith(f"{prefix}.")}

    async def update(self, key: str, value: bytes, revision: int) -> int:
        self.meddle()
        if self.mood is not None and not self.took_effect:
            raise self.mood
        known = self.kept.get(key)
        if (known.revision if known else 0) != revision:
            raise WrongRevision
        written = self.write(key, value)
        if self.mood is not None:
            raise self.mood
        return written

    async def delete(self, key: str) -> None:
        self.kept.pop(key, None)

    async def revision(self) -> int:
        return self.sequence

    async def clear(self, up_to: int) -> None:
        self.kept = {key: entry for key, entry in self.kept.items() if entry.revision > up_to}

    async def history(self, key: str) -> list[Entry]:
        raise NotImplementedError

    def mirror(
        self, on_change: Callable[[Mapping[str, Entry], frozenset[str]], None] | None = None
    ) -> AbstractAsyncContextManager[Mirror]:
        raise NotImplementedError

    def write(self, key: str, value: bytes) -> int:
        self.sequence += 1
        self.kept[key] = Entry(key=key, value=value, revision=self.sequence)
        return self.sequence
