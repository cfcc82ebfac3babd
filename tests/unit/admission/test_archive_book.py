"""The book of archives that people sent: what is missing, how much there may be, and what is due to go."""

from __future__ import annotations

import pytest

from headrace.runtime.engine import Moment
from headrace.wire.files import PIECE_BYTES, Archive, Upload
from headrace.wire.refusals import BadRequest, WrongState
from headrace_admission.files.archive_book import ArchiveBook, ArchiveKey, ArchiveRecord, Use

HOUR_MS = 3_600_000
SMALL = Archive("a" * 64, 10)
LARGE = Archive("b" * 64, 2 * PIECE_BYTES + 5)
MINE, LARGE_OF_MINE = ArchiveKey("ada", SMALL.sha256), ArchiveKey("ada", LARGE.sha256)


def at(ms: int) -> Moment:
    return Moment(ms * 1_000_000, ms)


def book(**limits: int) -> ArchiveBook:
    return ArchiveBook(limits.get("all", 2**40), limits.get("own", 2**40), HOUR_MS)


def kept(key: ArchiveKey, archive: Archive, ms: int = 0, into: ArchiveBook | None = None) -> ArchiveBook:
    into = into if into is not None else book()
    into.want(key, archive, at(ms))
    for piece in range(archive.piece_count):
        into.note_piece(key, piece)
    into.note_checked(key)
    return into


def test_an_archive_is_there_once_all_its_pieces_are_and_it_was_checked() -> None:
    found = book()
    assert found.want(LARGE_OF_MINE, LARGE, at(5)) == ArchiveRecord(LARGE, 5)
    assert found.want(LARGE_OF_MINE, LARGE, at(6)) is None

    found.note_piece(LARGE_OF_MINE, 2)
    assert found.missing(LARGE_OF_MINE) == [0, 1]
    found.note_piece(LARGE_OF_MINE, 0)
    assert found.note_checked(LARGE_OF_MINE) is None, "a piece is missing"
    found.note_piece(LARGE_OF_MINE, 1)
    assert not found.is_there(LARGE_OF_MINE, LARGE)
    assert found.note_checked(LARGE_OF_MINE) == ArchiveRecord(LARGE, 6, is_whole=True)
    assert found.is_there(LARGE_OF_MINE, LARGE)
    assert not found.is_there(ArchiveKey("ben", LARGE.sha256), LARGE), "its hash is of no use to others"
    assert not found.is_there(LARGE_OF_MINE, Archive(LARGE.sha256, 7))

    found.note_lost(LARGE_OF_MINE, 1)
    assert found.missing(LARGE_OF_MINE) == [1]
    found.note_piece(LARGE_OF_MINE, 1)
    assert not found.is_there(LARGE_OF_MINE, LARGE), "what was sent anew is checked anew"

    found.drop(LARGE_OF_MINE)
    assert len(found) == 0
    assert found.note_checked(LARGE_OF_MINE) is None


@pytest.mark.parametrize(
    ("upload", "place"),
    [
        (Upload(SMALL, 1), "piece"),
        (Upload(SMALL, 0, b"x" * 11), "data"),
        (Upload(LARGE, 2, b"x" * 6), "data"),
        (Upload(Archive(SMALL.sha256, 11)), "archive.size_bytes"),
    ],
)
def test_a_piece_that_fits_no_archive_is_refused(upload: Upload, place: str) -> None:
    refusal = kept(MINE, SMALL).refusal(ArchiveKey("ada", upload.archive.sha256), upload)

    assert isinstance(refusal, BadRequest)
    assert refusal.place == place


def test_no_person_and_not_all_together_have_more_than_they_may() -> None:
    found = kept(MINE, SMALL, into=book(own=3 * PIECE_BYTES, all=4 * PIECE_BYTES))
    refusal = found.refusal(LARGE_OF_MINE, Upload(LARGE))

    assert isinstance(refusal, WrongState)
    assert f"{PIECE_BYTES} bytes of archives of ada are stored already" in refusal.text()
    of_ben = ArchiveKey("ben", LARGE.sha256)
    assert found.refusal(of_ben, Upload(LARGE)) is None
    kept(of_ben, LARGE, into=found)
    of_cleo = found.refusal(ArchiveKey("cleo", SMALL.sha256), Upload(SMALL))
    assert isinstance(of_cleo, WrongState)
    assert "for all archives of all users" in of_cleo.text()
    assert found.refusal(MINE, Upload(SMALL)) is None, "what is there takes no more room"


def test_an_archive_goes_when_its_operations_are_over_and_unused_ones_after_an_hour() -> None:
    found = kept(LARGE_OF_MINE, LARGE, 100, into=kept(MINE, SMALL, 100))
    live, over = Use(MINE, 200, is_over=False), Use(MINE, 150, is_over=True)

    assert found.take_due([live, over], at(300)) == []
    assert found.take_due([over], at(300)) == [MINE]
    assert not found.is_there(MINE, SMALL), "nothing starts with it while it is removed"
    assert found.take_due([], at(100 + HOUR_MS)) == []
    assert found.take_due([], at(101 + HOUR_MS)) == [LARGE_OF_MINE]
    assert len(found) == 0


def test_a_piece_that_an_archive_does_not_have_is_not_lost() -> None:
    found = kept(MINE, SMALL)

    found.note_lost(MINE, 1)

    assert found.is_there(MINE, SMALL)
    assert found.missing(MINE) == []


def test_the_check_finds_wrong_pieces_and_checked_archives_that_lack_a_piece() -> None:
    found = kept(LARGE_OF_MINE, LARGE, into=kept(MINE, SMALL))
    assert found.check() == []
    found.note_lost(LARGE_OF_MINE, 1)
    assert found.check() == []

    found._entries[MINE].missing.add(0)
    found._entries[LARGE_OF_MINE].missing.add(3)

    assert found.check() == [
        f"archive ada.{SMALL.sha256} is checked, but lacks [0]",
        f"archive ada.{LARGE.sha256} has 3 pieces, but lacks [1, 3]",
    ]


def test_an_archive_that_is_sent_again_waits_for_its_next_operation() -> None:
    found = kept(MINE, SMALL, 100)
    found.want(MINE, SMALL, at(500))

    assert found.take_due([Use(MINE, 200, is_over=True)], at(600)) == []
    assert found.take_due([Use(MINE, 200, is_over=True)], at(501 + HOUR_MS)) == [MINE]


def test_archives_of_a_former_life_are_there() -> None:
    found = book()

    found.restore({MINE: ArchiveRecord(SMALL, 5, is_whole=True)})

    assert found.is_there(MINE, SMALL)
    assert len(found) == 1


def test_an_unused_archive_goes_in_time_after_the_clock_was_set_back() -> None:
    found = kept(MINE, SMALL, 400 * 24 * HOUR_MS)

    assert found.take_due([], at(100)) == []
    assert found.take_due([], at(101 + HOUR_MS)) == [MINE]
