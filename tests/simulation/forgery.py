"""What a stranger makes of a message that he saw: rubbish, a part, a hundred times as much, another term, another node."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from headrace.bus import Message

__all__ = ["forged"]

#: Above every term that anybody takes, and within what a message may say.
_FAR_TERM: Final = 2**40
_MOST_BYTES: Final = 400_000


def forged(message: Message, draw: random.Random) -> Message:
    """One such message to the same subject. Its answer goes where nobody waits, below the same inbox."""
    make = draw.choice(
        (_rubbish, _part, _a_hundred_times, _of_a_far_term, _of_a_later_term, _of_an_old_term, _of_a_stranger)
    )
    inbox = ".".join(message.reply_to.split(".")[:3])
    return Message(message.subject, make(message.data, draw), message.headers, f"{inbox}.forged" if inbox else "")


def _rubbish(_data: bytes, draw: random.Random) -> bytes:
    return draw.randbytes(draw.randint(0, 300))


def _part(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _a_hundred_times(data: bytes, _draw: random.Random) -> bytes:
    return (data * 100)[:_MOST_BYTES]


def _of_a_far_term(data: bytes, _draw: random.Random) -> bytes:
    return _changed(data, "term", lambda _term: _FAR_TERM)


def _of_a_later_term(data: bytes, draw: random.Random) -> bytes:
    return _changed(data, "term", lambda term: term + draw.choice((1, 1_000)))


def _of_an_old_term(data: bytes, _draw: random.Random) -> bytes:
    return _changed(data, "term", lambda term: max(0, term - 1))


def _of_a_stranger(data: bytes, _draw: random.Random) -> bytes:
    return _changed(data, "node", lambda _node: "stranger")


def _changed(data: bytes, name: str, change: Callable[[Any], Any]) -> bytes:
    """The message with every field of that name changed; rubbish where it has none, so that it says nothing true a second time."""
    try:
        message = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return b"\xc1"
    is_changed = False
    for each in _maps(message):
        if name in each:
            each[name], is_changed = change(each[name]), True
        for version in ("version", "previous"):
            if name == "term" and isinstance(each.get(version), list):
                each[version][0], is_changed = change(each[version][0]), True
    return msgspec.msgpack.encode(message) if is_changed else b"\xc1"


def _maps(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _maps(each)
