"""A case that notes which of its keys were read, so that a key which no adapter looks at is an error and not passed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

__all__ = ["plain", "unread", "watched"]

#: Remarks and names, which decide nothing.
_REMARKS: Final = {"name", "id", "note", "note2", "source", "origin", "units", "resource", "skip_cross_check"}


class _Watched(dict[str, Any]):
    """A mapping of a case. Whatever gives a value away notes its key."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self.read.add(key)
        return super().pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().setdefault(key, default)

    def __iter__(self) -> Iterator[str]:
        # Without it a copy would be made past the methods above.
        return super().__iter__()

    def __eq__(self, other: object) -> bool:
        self.read.update(dict.keys(self))
        return super().__eq__(other)

    __hash__ = None

    def items(self) -> Any:
        self.read.update(dict.keys(self))
        return super().items()

    def values(self) -> Any:
        self.read.update(dict.keys(self))
        return super().values()

    def __or__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]
        merged: dict[str, Any] = dict(self.items()) | other
        return merged

    def __ror__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]
        merged: dict[str, Any] = other | dict(self.items())
        return merged


def watched(given: Any) -> Any:
    """The same, with all mappings in it watched."""
    if isinstance(given, dict):
        return _Watched({key: watched(value) for key, value in given.items()})
    return [watched(each) for each in given] if isinstance(given, list) else given


def plain(given: Any) -> Any:
    """A copy for those who read all of it, such as a serializer, which would read past what is noted."""
    if isinstance(given, dict):
        return {key: plain(value) for key, value in given.items()}
    return [plain(each) for each in given] if isinstance(given, list) else given


def unread(given: Any, place: str = "") -> Iterator[str]:
    """The paths of keys that nobody read. What is below such a key is not listed."""
    if isinstance(given, _Watched):
        for key, value in dict.items(given):
            if key in _REMARKS:
                continue
            if key not in given.read:
                yield f"{place}{key}"
            else:
                yield from unread(value, f"{place}{key}.")
    elif isinstance(given, list):
        for number, each in enumerate(given):
            yield from unread(each, f"{place}{number}.")
