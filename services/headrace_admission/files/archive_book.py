"""The archives that users sent: which pieces are stored, how many bytes they may take, and which are due for removal.

Pure. Sums of sizes are computed from the booked archives each time, so no counter can differ from them. Invariants (`check`): an
archive lacks only pieces that belong to it, and a checked archive lacks none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from headrace.runtime.engine import Figure, Moment, gauge
from headrace.wire.files import PIECE_BYTES, Archive, Upload
from headrace.wire.refusals import BadRequest, Refusal, WrongState


class ArchiveKey(NamedTuple):
    """The key of an archive. It contains the user, so no user gets another user's archive by its hash."""

    user: str
    sha256: str

    @property
    def text(self) -> str:
        """Return the key as text, with which the bucket keys of the archive begin."""
        return f"{self.user}.{self.sha256}"


class ArchiveRecord(msgspec.Struct, frozen=True):
    """An archive as its bucket stores it."""

    archive: Archive
    #: Unix time in milliseconds at which the archive was last sent or asked for.
    wanted_at_ms: int
    #: True if all pieces are stored and the archive can be unpacked. If False, a process that starts does not know which pieces are
    #: stored.
    is_whole: bool = False
    #: The term that wrote the record last.
    writer: int = 0


class Use(NamedTuple):
    """An operation that names an archive."""

    key: ArchiveKey
    started_at_ms: int
    is_over: bool


class _Entry(msgspec.Struct):
    archive: Archive
    missing: set[int]
    wanted_at_ms: int
    #: True if a check found that the archive can be unpacked.
    is_checked: bool = False


class ArchiveBook:
    """All archives that are stored or being sent. The size of an archive counts in whole pieces: a small archive counts as one piece."""

    def __init__(self, most_bytes: int, most_bytes_of_a_user: int, unused_ms: int) -> None:
        self._most_bytes = most_bytes
        self._most_bytes_of_a_user = most_bytes_of_a_user
        self._unused_ms = unused_ms
        self._entries: dict[ArchiveKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def restore(self, whole: Mapping[ArchiveKey, ArchiveRecord]) -> None:
        """Load the complete archives."""
        self._entries = {
            key: _Entry(record.archive, set(), record.wanted_at_ms, is_checked=True) for key, record in whole.items()
        }

    def refusal(self, key: ArchiveKey, upload: Upload) -> Refusal | None:
        """Return the refusal of a piece that does not fit its archive, or of an archive that exceeds a quota; else None."""
        archive = upload.archive
        if upload.piece >= archive.piece_count:
            return BadRequest(
                "piece", str(upload.piece), f"less than {archive.piece_count}, the archive's number of pieces"
            )
        if upload.data and len(upload.data) != archive.piece_bytes(upload.piece):
            expected = f"{archive.piece_bytes(upload.piece)} bytes, the size of piece {upload.piece}"
            return BadRequest("data", f"{len(upload.data)} bytes", expected)
        known = self._entries.get(key)
        if known is not None:
            same = known.archive.size_bytes == archive.size_bytes
            size = f"{known.archive.size_bytes}, the size of the archive that was sent with this hash"
            return None if same else BadRequest("archive.size_bytes", str(archive.size_bytes), size)
        more = _booked_bytes(archive)
        for whose, used, most in (
            (f"of {key.user}", self._used_bytes(key.user), self._most_bytes_of_a_user),
            ("of all users", self._used_bytes(), self._most_bytes),
        ):
            if used + more > most:
                state = f"too large: it has {archive.size_bytes} bytes, and {used} bytes of archives {whose} are stored already"
                return WrongState(
                    "the upload", archive.sha256[:12], state, f"at most {most} bytes for all archives {whose}"
                )
        return None

    def want(self, key: ArchiveKey, archive: Archive, now: Moment) -> ArchiveRecord | None:
        """Record that a user sends an archive. Return the record of a new archive, or None for a known one."""
        known = self._entries.get(key)
        if known is not None:
            known.wanted_at_ms = now.wall_ms
            return None
        self._entries[key] = _Entry(archive, set(range(archive.piece_count)), now.wall_ms)
        return ArchiveRecord(archive, now.wall_ms)

    def note_piece(self, key: ArchiveKey, piece: int) -> None:
        """Record that a piece is stored."""
        if key in self._entries:
            self._entries[key].missing.discard(piece)

    def note_checked(self, key: ArchiveKey) -> ArchiveRecord | None:
        """Record that an archive can be unpacked. Return its new record, or None if a piece is missing again."""
        entry = self._entries.get(key)
        if entry is None or entry.missing:
            return None
        entry.is_checked = True
        return ArchiveRecord(entry.archive, entry.wanted_at_ms, is_whole=True)

    def drop(self, key: ArchiveKey) -> None:
        """Drop an archive from the book. The caller removes its data."""
        self._entries.pop(key, None)

    def note_lost(self, key: ArchiveKey, piece: int) -> None:
        """Record that a piece is lost, so that it is sent again and nothing starts without it.

        A piece number beyond the archive's last piece is ignored. No client could send such a piece, so the archive would never
        become complete.
        """
        entry = self._entries.get(key)
        if entry is not None and piece < entry.archive.piece_count:
            entry.missing.add(piece)
            entry.is_checked = False

    def missing(self, key: ArchiveKey) -> list[int]:
        """Return the numbers of the missing pieces of a known archive."""
        return sorted(self._entries[key].missing)

    def is_there(self, key: ArchiveKey, archive: Archive) -> bool:
        """True if all pieces of an archive are stored and the archive can be unpacked."""
        entry = self._entries.get(key)
        return entry is not None and entry.is_checked and entry.archive.size_bytes == archive.size_bytes

    def take_due(self, uses: Iterable[Use], now: Moment) -> list[ArchiveKey]:
        """Drop and return the archives that no operation needs any more, for removal.

        An archive is due when all its operations have ended, or if no operation was started with it for `unused_ms`.
        """
        if not self._entries:
            return []
        needed: set[ArchiveKey] = set()
        used_at_ms: dict[ArchiveKey, int] = {}
        for key, started_at_ms, is_over in uses:
            if not is_over:
                needed.add(key)
            used_at_ms[key] = max(used_at_ms.get(key, 0), started_at_ms)
        for entry in self._entries.values():
            # A time in the future was recorded before the clock was set back. If it stayed, the archive would be kept too long, by as much
            # as the clock was set back.
            entry.wanted_at_ms = min(entry.wanted_at_ms, now.wall_ms)
        due = [
            key
            for key, entry in self._entries.items()
            if key not in needed
            and (used_at_ms.get(key, -1) >= entry.wanted_at_ms or now.wall_ms - entry.wanted_at_ms > self._unused_ms)
        ]
        for key in due:
            del self._entries[key]
        return due

    def check(self) -> list[str]:
        """Return a description of each broken invariant."""
        broken = []
        for key, entry in self._entries.items():
            pieces = entry.archive.piece_count
            if not entry.missing <= set(range(pieces)):
                broken.append(f"archive {key.text} has {pieces} pieces, but lacks {sorted(entry.missing)}")
            if entry.is_checked and entry.missing:
                broken.append(f"archive {key.text} is checked, but lacks {sorted(entry.missing)}")
        return broken

    def figures(self) -> list[Figure]:
        """Return the metrics of the archives and their bytes."""
        return [
            gauge("archives", "archives", len(self._entries), "Archives of files that users uploaded."),
            gauge("archive_bytes", "bytes", self._used_bytes(), "Bytes that these archives count against the quotas."),
        ]

    def _used_bytes(self, user: str = "") -> int:
        return sum(_booked_bytes(entry.archive) for key, entry in self._entries.items() if user in ("", key.user))


def _booked_bytes(archive: Archive) -> int:
    return archive.piece_count * PIECE_BYTES
