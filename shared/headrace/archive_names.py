"""Checks of the names of files and the targets of symbolic links in archives. Names and targets that lead outside the archive or are too
long are refused.
"""

from __future__ import annotations

import os
from typing import Final

from headrace.wire.files import LONGEST_NAME_BYTES, LONGEST_PART_BYTES, LONGEST_TARGET_BYTES, MOST_NAME_PARTS

#: Number of characters of a name that a message shows.
_LONGEST_SHOWN: Final = 200


def defect_of_name(name: str) -> str:
    """Return why no file in an archive may have this name, or "" if it may. The text contains at most the beginning of the name."""
    parts = name.split("/")
    shown = repr(name[:_LONGEST_SHOWN])
    if any(part in ("", ".", "..") for part in parts):
        return f"the name {shown} leads out of its folder"
    if "\0" in name:
        return f"the name {shown} has a NUL in it"
    if len(parts) > MOST_NAME_PARTS:
        return f"the name {shown} has {len(parts)} parts, more than {MOST_NAME_PARTS}"
    size_bytes, part_bytes = len(os.fsencode(name)), max(len(os.fsencode(part)) for part in parts)
    if size_bytes > LONGEST_NAME_BYTES or part_bytes > LONGEST_PART_BYTES:
        most = f"{LONGEST_NAME_BYTES} bytes, and {LONGEST_PART_BYTES} for each of its parts"
        return f"the name {shown} is too long: {size_bytes} bytes, more than {most}"
    return ""


def defect_of_link(name: str, target: str) -> str:
    """Return why a symbolic link of this name may not have this target, or "" if it may."""
    shown = repr(name[:_LONGEST_SHOWN])
    if not target or "\0" in target:
        return f"the link {shown} has a target that is empty or has a NUL in it"
    if len(os.fsencode(target)) > LONGEST_TARGET_BYTES:
        size_bytes = len(os.fsencode(target))
        return f"the link {shown} has a target of {size_bytes} bytes, more than {LONGEST_TARGET_BYTES}"
    if not link_stays_inside(name, target):
        return f"the link {shown} leads to {target[:_LONGEST_SHOWN]!r}, out of the archive"
    return ""


def link_stays_inside(name: str, target: str) -> bool:
    """True if a symbolic link cannot lead outside the archive, even through other links of the archive."""
    parts = target.split("/")
    climbs = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    return not target.startswith("/") and climbs <= name.count("/") and ".." not in parts[climbs:]
