"""Times as people read and write them, and the ticks of a time axis. Pure: the present time is an argument."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, tzinfo
from typing import Final

from headrace.durations import parse_duration_ms
from headrace.errors import BadInput

Tick = tuple[float, str]

_AGO = re.compile(r"[0-9.]+\s*(ms|s|m|h|d)\Z")
_EXPECTED: Final = "a duration such as 90s, 6h or 7d, or a time such as 2026-11-20T18:00 or 18:00"
_DAY_S: Final = 86_400
#: The latest time that is shown, two days before the year 10000. A node may report a much later time for its jobs.
_LATEST_S: Final = 253_402_128_000
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)


def parse_timestamp_ms(
    text: str, *, place: str, now_ms: int, is_future: bool = False, zone: tzinfo | None = None
) -> int:
    """Return the Unix time of `6h` (that long ago), `18:00` (its last occurrence), `2026-11-20T18:00` or `now`, in milliseconds.

    With `is_future`, `6h` is that long from now, and `18:00` its next occurrence. A time without a zone is in `zone`, else in this
    machine's zone. Raises `BadInput`.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if _AGO.match(text):
        distance_ms = parse_duration_ms(text, place=place)
        return now_ms + distance_ms if is_future else max(0, now_ms - distance_ms)
    now = datetime.fromtimestamp(now_ms / 1000, zone).astimezone(zone)
    try:
        if re.match(r"[0-9]{1,2}:[0-9]{2}", text):
            clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M")  # noqa: DTZ007 - only its clock is used
            found = now.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
            if is_future:
                found = found if found > now else found + timedelta(days=1)
            else:
                found = found if found <= now else found - timedelta(days=1)
        else:
            found = datetime.fromisoformat(text)
            found = found if found.tzinfo is not None else found.replace(tzinfo=zone).astimezone(zone)
        return max(0, int(found.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise BadInput(place, text, _EXPECTED) from None


def timestamp(unix_s: float, zone: tzinfo | None = None) -> str:
    """Return the time as `2026-11-20 18:00:05`, in the machine's zone unless `zone` is given. A time after `_LATEST_S` is shown as that."""
    return datetime.fromtimestamp(min(unix_s, _LATEST_S), zone).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def time_of_day(at_ms: int, now_ms: int) -> str:
    """Return the time of day of a Unix time in milliseconds, with the date if it is a day or more from now."""
    return time.strftime(
        "%H:%M:%S" if abs(now_ms - at_ms) < 1000 * _DAY_S else "%Y-%m-%d %H:%M", time.localtime(at_ms / 1000)
    )


def zone_name(unix_s: float, zone: tzinfo | None = None) -> str:
    """Return the name of the zone in which times are shown, such as `UTC` or `CET`."""
    return datetime.fromtimestamp(unix_s, zone).astimezone(zone).tzname() or "local"


def time_ticks(start_s: float, end_s: float, most: int, zone: tzinfo | None = None) -> list[Tick]:
    """Return at most `most` round times between start and end, with labels. The first label of each day names the day."""
    span = max(end_s - start_s, 1.0)
    most = max(most, 2)
    small = [step for step in _STEPS_S if span / step <= most]
    days = 1
    while span / (days * _DAY_S) > most:
        days = days * 2 if days > 1 else 2
    step = small[0] if small else days * _DAY_S
    midnight = datetime.fromtimestamp(start_s, zone).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    ticks: list[Tick] = []
    at = midnight.timestamp()
    day = ""
    while at <= end_s:
        if at >= start_s and len(ticks) < most:
            local = datetime.fromtimestamp(at, zone).astimezone(zone)
            ticks.append((at, _label(local, step, new_day=local.strftime("%j") != day)))
            day = local.strftime("%j")
        # Skip all steps before the start at once. Otherwise steps of one second would be counted one by one from midnight on.
        at = at + step if at >= start_s else at + max(step, (start_s - at) // step * step)
    return ticks


def _label(local: datetime, step_s: int, *, new_day: bool) -> str:
    date = f"{local:%b} {local.day}"
    if step_s >= _DAY_S:
        return date
    clock = local.strftime("%H:%M:%S" if step_s < 60 else "%H:%M")
    if not new_day:
        return clock
    return date if (local.hour, local.minute, local.second) == (0, 0, 0) else f"{date} {clock}"
