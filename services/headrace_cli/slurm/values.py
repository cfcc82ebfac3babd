"""Values as Slurm writes them: times, memory, lists of hosts, signals and names of files. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.durations import LONGEST_MS
from headrace.errors import BadInput
from headrace.wire.preemption import InterruptSignal, parse_signal

_TIME: Final = re.compile(r"(?:(?P<days>\d{1,9})-)?(?P<clock>\d{1,12}(?::\d{1,12}){0,2})\Z")
_MEMORY: Final = re.compile(r"(?P<figure>\d{1,15}(?:\.\d{1,15})?)\s*(?P<unit>[KMGT]?)B?\Z", re.IGNORECASE)
_UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_UNLIMITED: Final = ("UNLIMITED", "INFINITE", "0")
_HOSTS: Final = re.compile(r"([^\[,]+)(?:\[([0-9,-]{1,1000})\])?(?:,|\Z)")
#: Upper bound of the hosts of a list.
_MOST_HOSTS: Final = 10_000
_PATTERN: Final = re.compile(r"%(\d*)([%AajJnNstux])")


def parse_time_s(text: str, place: str) -> int | None:
    """Return the seconds of `90`, `1:30:00`, `1-12` or `1-12:30`; None for no limit. Raises `BadInput`.

    A single number is minutes. Two numbers are minutes and seconds, after days they are hours and minutes.

    >>> [parse_time_s(text, "--time") for text in ("90", "2:30", "1:30:00", "1-12", "1-12:30", "UNLIMITED")]
    [5400, 150, 5400, 129600, 131400, None]
    """
    if text.upper() in _UNLIMITED:
        return None
    found = _TIME.match(text.strip())
    if not found:
        raise BadInput(place, text, "a time such as 90 (minutes), 30:00, 2:00:00, 1-12 or 1-12:00:00")
    clock = [int(part) for part in found["clock"].split(":")]
    if found["days"]:
        hours, minutes, seconds = [*clock, 0, 0][:3]
        total_s = int(found["days"]) * 86_400 + hours * 3600 + minutes * 60 + seconds
    else:
        hours, minutes, seconds = clock if len(clock) == 3 else (0, *[*clock, 0][:2])
        total_s = hours * 3600 + minutes * 60 + seconds
    if not 0 < total_s <= LONGEST_MS // 1000:
        raise BadInput(place, text, "a time above 0, of at most thirty years")
    return total_s


def format_time(seconds: int) -> str:
    """Write seconds as `sacct` does.

    >>> format_time(95), format_time(90_000)
    ('00:01:35', '1-01:00:00')
    """
    days, rest = divmod(max(0, seconds), 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def format_short_time(seconds: int) -> str:
    """Write seconds as `squeue` does.

    >>> format_short_time(95), format_short_time(4000), format_short_time(90_000)
    ('1:35', '1:06:40', '1-01:00:00')
    """
    if seconds >= 86_400:
        return format_time(seconds)
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_moment(at_ms: int) -> str:
    """Write a Unix time in milliseconds in this machine's zone, or `Unknown` for 0."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_ms / 1000)) if at_ms else "Unknown"


def parse_memory(text: str, place: str) -> int:
    """Return the bytes of `512`, `2G` or `100KB`. A number without a unit is MiB, and 0 is no limit. Raises `BadInput`.

    >>> parse_memory("512", "--mem"), parse_memory("2G", "--mem")
    (536870912, 2147483648)
    """
    found = _MEMORY.match(text.strip())
    if not found:
        raise BadInput(place, text, "memory such as 512 (MiB), 512M or 2G")
    return int(float(found["figure"]) * _UNITS[found["unit"].upper() or "M"])


def format_memory(size: int, unit: str = "") -> str:
    """Write bytes in the largest unit in which they are whole, or in the given unit.

    >>> format_memory(2 * 2**30), format_memory(1536 * 2**20), format_memory(10_000, "K")
    ('2G', '1536M', '10K')
    """
    if unit:
        return f"{round(size / _UNITS[unit])}{unit}"
    name = next((name for name in ("T", "G", "M") if size and size % _UNITS[name] == 0), "K")
    return f"{size // _UNITS[name]}{name}" if size else "0"


def parse_hosts(text: str, place: str) -> list[str]:
    """Return the hosts of a list such as `alpha,node[01-03,7]`. Raises `BadInput`.

    >>> parse_hosts("alpha,node[08-10]", "--nodelist")
    ['alpha', 'node08', 'node09', 'node10']
    """
    hosts, end = list[str](), 0
    for found in _HOSTS.finditer(text):
        if found.start() != end:
            break
        end = found.end()
        for part in (found[2] or "").split(","):
            first, dash, last = part.partition("-")
            numbers = range(int(first), int(last) + 1) if dash and first and last else ()
            if (dash and not numbers) or len(hosts) + len(numbers) > _MOST_HOSTS:
                raise BadInput(place, text, f"ranges of hosts such as node[01-16], with at most {_MOST_HOSTS} hosts")
            hosts += [f"{found[1]}{number:0{len(first)}}" for number in numbers] if dash else [found[1] + part]
    if end != len(text) or not hosts:
        raise BadInput(place, text, "names of hosts such as alpha,node[01-16]")
    return hosts


def parse_signal_wish(text: str, place: str) -> tuple[InterruptSignal, int, bool]:
    """Read `USR1`, `USR1@60` or `B:USR1@60`: signal, seconds before the time limit, and whether only the script gets it.

    Raises `BadInput`.
    """
    found = re.match(r"(?:(R?B?R?):)?(\w+)(?:@(\d{1,5}))?\Z", text.strip())
    if not found:
        raise BadInput(place, text, "a signal such as USR1@60 or B:USR1@60")
    return parse_signal(found[2], place=place), int(found[3] or 60), "B" in (found[1] or "")


class Piece(NamedTuple):
    """A part of the name of a file: a text, or a letter such as `j` that stands for a word."""

    text: str
    letter: str = ""
    #: Smallest number of digits if the word is a number. Shorter numbers get zeros in front.
    width: int = 0


def pattern_pieces(pattern: str) -> list[Piece]:
    """Return the parts of a name such as `out/%x-%4a.txt`. A backslash keeps the whole name as it is, as in Slurm."""
    if "\\" in pattern:
        return [Piece(pattern.replace("\\", ""))]
    pieces, end = list[Piece](), 0
    for found in _PATTERN.finditer(pattern):
        pieces.append(Piece(pattern[end : found.start()]))
        end = found.end()
        letter = found[2]
        pieces.append(Piece("%") if letter == "%" else Piece(found[0], letter, min(int(found[1] or 0), 10)))
    return [piece for piece in (*pieces, Piece(pattern[end:])) if piece.text]


def in_pattern(pattern: str, words: Mapping[str, str]) -> str:
    """Return the name of a file for a pattern. `words` has the text for each letter; a letter without a text stays as it is.

    >>> in_pattern("out/%x-%4a.txt", {"x": "train", "a": "7"})
    'out/train-0007.txt'
    """
    return "".join(
        padded(words[piece.letter], piece.width) if piece.letter in words else piece.text
        for piece in pattern_pieces(pattern)
    )


def padded(word: str, width: int) -> str:
    """Return the word, with zeros in front if it is a number."""
    return word.zfill(width) if word.isdecimal() else word
