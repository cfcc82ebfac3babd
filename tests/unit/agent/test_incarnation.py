"""Lives of an agent are in order, whatever became of the clock and of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_agent.host.incarnation import next_incarnation

NOW_MS = 1_700_000_000_000


def test_each_life_is_greater_than_the_one_before_though_the_clock_was_set_back(tmp_path: Path) -> None:
    lives = [next_incarnation(str(tmp_path), now_ms) for now_ms in (NOW_MS, NOW_MS, NOW_MS - 10**9, 0, NOW_MS + 50)]

    assert sorted(lives) == lives
    assert [int(life.partition("-")[0]) - NOW_MS for life in lives] == [0, 1, 2, 3, 50]


@pytest.mark.parametrize(
    "damaged", [b"", b"\0" * 17, b"1700000000\n", b"9999999999999999\n", b"0000000000000001", b"\xff\xfe", b"1" * 99]
)
def test_a_damaged_file_is_made_up_for_by_the_clock(tmp_path: Path, damaged: bytes) -> None:
    former = next_incarnation(str(tmp_path), NOW_MS)
    (tmp_path / "incarnation").write_bytes(damaged)

    later = next_incarnation(str(tmp_path), NOW_MS + 1)

    assert former < later
    assert later < next_incarnation(str(tmp_path), 0)


def test_a_folder_that_was_put_back_from_an_old_copy_names_no_life_again(tmp_path: Path) -> None:
    next_incarnation(str(tmp_path), NOW_MS)
    copy = (tmp_path / "incarnation").read_bytes()
    lives = [next_incarnation(str(tmp_path), NOW_MS) for _ in range(20)]
    (tmp_path / "incarnation").write_bytes(copy)

    assert max(lives) < next_incarnation(str(tmp_path), NOW_MS + 1_000)


def test_without_a_folder_the_clock_gives_the_order(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "file")
    Path(nowhere).touch()

    assert next_incarnation(nowhere, NOW_MS) < next_incarnation(nowhere, NOW_MS + 1)


def test_what_a_life_left_half_written_does_not_harm_the_next(tmp_path: Path) -> None:
    former = next_incarnation(str(tmp_path), NOW_MS)
    (tmp_path / "incarnation.new").write_bytes(b"000")

    assert former < next_incarnation(str(tmp_path), 0)
    assert [path.name for path in tmp_path.iterdir()] == ["incarnation"]
