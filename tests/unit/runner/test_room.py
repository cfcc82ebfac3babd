"""What takes room on the disk and how it goes: retention of logs, removal of folders; and the settings that say how much."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace_agent.runner.files import removal
from headrace_agent.runner.files.log_retention import Retention
from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.files.scratch import ScratchFolders
from headrace_agent.runner.host.files import FolderEntry, LinuxFiles
from headrace_agent.runner.settings import Settings, parse


def test_the_operation_that_has_been_idle_longest_goes_first() -> None:
    retention = Retention(100)
    for now, name in enumerate(["a", "b", "c"]):
        retention.job_started(name, now)
        retention.grew(name, 60)
    retention.job_ended("b", 10)
    retention.job_ended("a", 11)

    assert retention.next_is_due
    assert retention.next_to_go() == "b"
    assert retention.next_to_go() == "a"
    assert not retention.next_is_due
    assert retention.next_to_go() is None


def test_logs_of_one_person_push_out_none_of_another_person() -> None:
    retention = Retention(100)
    for now, (name, user) in enumerate([("old", ""), ("a", "anna"), *((f"b{each}", "ben") for each in range(5))]):
        retention.job_started(name, now, user)
        retention.grew(name, 30)
        retention.job_ended(name, now)

    gone = [retention.next_to_go() for _ in range(5)]
    assert gone == ["b0", "b1", "b2", "b3", None]
    retention.job_started("c", 10, "cleo")
    retention.grew("c", 60)
    assert [retention.next_to_go(), retention.next_to_go()] == ["b4", "a"], "logs in use stay"


def test_logs_of_a_running_job_stay_whatever_room_they_take() -> None:
    retention = Retention(100)
    retention.job_started("a", 0)
    retention.grew("a", 1000)

    assert not retention.next_is_due
    assert retention.next_to_go() is None


STEP = st.tuples(st.sampled_from(["start", "end", "grow", "go"]), st.sampled_from("abc"), st.integers(0, 80))


@given(st.lists(STEP, max_size=60))
def test_always_the_books_agree_and_nothing_in_use_goes(steps: list[tuple[str, str, int]]) -> None:
    retention = Retention(100)
    jobs = dict.fromkeys("abc", 0)
    for now, (what, name, size) in enumerate(steps):
        if what == "start":
            retention.job_started(name, now)
            jobs[name] += 1
        elif what == "end" and jobs[name]:
            retention.job_ended(name, now)
            jobs[name] -= 1
        elif what == "grow" and jobs[name]:
            retention.grew(name, size)
        elif what == "go":
            due = retention.next_is_due
            gone = retention.next_to_go()
            assert (gone is not None) == due
            assert gone is None or jobs[gone] == 0
        assert not retention.check()


def test_a_deep_folder_goes_a_little_at_a_time(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    folder = tmp_path / "scratch"
    (folder / "a" / "b" / "c").mkdir(parents=True)
    for number in range(50):
        (folder / "a" / f"{number}").touch()
    (folder / "a" / "b" / "link").symlink_to(outside)
    removal = Removal(LinuxFiles(), str(tmp_path / "trash"))
    removal.remove(str(folder))
    assert not folder.exists()

    steps = 0
    while removal.busy:
        removal.step(10)
        steps += 1
        assert steps < 50
    assert steps >= 5
    assert list((tmp_path / "trash").iterdir()) == []
    assert (outside / "precious").exists()


def test_trash_of_a_former_runner_goes_too(tmp_path: Path) -> None:
    (tmp_path / "trash" / "1.job" / "deep").mkdir(parents=True)
    removal = Removal(LinuxFiles(), str(tmp_path / "trash"))
    for _ in range(10):
        removal.step()

    assert list((tmp_path / "trash").iterdir()) == []


def test_of_very_many_folders_that_a_job_leaves_few_are_known_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "MOST_KNOWN", 10)
    for number in range(300):
        (tmp_path / "job" / f"{number}" / "deep").mkdir(parents=True)
    trash = removal.Removal(LinuxFiles(), str(tmp_path / "trash"))
    trash.remove(str(tmp_path / "job"))
    steps = 0
    while trash.busy and steps < 1_000:
        trash.step(20)
        steps += 1
        assert len(trash._folders) <= 10
        if steps == 5:
            trash = removal.Removal(LinuxFiles(), str(tmp_path / "trash"))

    assert list((tmp_path / "trash").iterdir()) == []


def test_what_cannot_be_removed_does_not_keep_the_removal_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = LinuxFiles()
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "file").touch()

    def refuse(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(host, "unlink", refuse)
    removal = Removal(host, str(tmp_path / "trash"))
    removal.remove(str(tmp_path / "job"))
    removal.step()

    assert not removal.busy


def test_what_is_swapped_for_a_link_between_two_looks_is_not_followed(tmp_path: Path) -> None:
    """The account of a job may change its folder at any moment. Root changed the rights of a foreign folder so."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    outside.chmod(0o500)
    folder = tmp_path / "job"
    for name in ("first", "second"):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(0o000)

    class Swapping(LinuxFiles):
        def entries(self, path: str, most: int | None = None) -> list[FolderEntry]:
            found = super().entries(path, most)
            for entry in found:
                if entry.name in ("first", "second"):
                    os.rmdir(f"{path}/{entry.name}")
                    os.symlink(outside, f"{path}/{entry.name}")
            return found

    removal = Removal(Swapping(), str(tmp_path / "trash"))
    removal.remove(str(folder))
    while removal.busy:
        removal.step()

    assert (outside.stat().st_mode & 0o7777, (outside / "precious").exists()) == (0o500, True)
    assert (folder.exists(), list((tmp_path / "trash").iterdir())) == (False, [])


def test_a_link_to_a_folder_goes_and_the_folder_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        LinuxFiles().entries(str(tmp_path / "link"))
    removal = Removal(LinuxFiles(), str(tmp_path / "trash"))
    removal.remove(str(tmp_path / "link"))
    removal.step()

    assert (list((tmp_path / "trash").iterdir()), removal.busy) == ([], False)
    assert (outside / "precious").exists()


def test_what_a_job_locked_up_goes_too(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    for each in (folder / "a" / "b", folder / "a", folder):
        each.chmod(0)
    removal = Removal(LinuxFiles(), str(tmp_path / "trash"))
    removal.remove(str(folder))
    while removal.busy:
        removal.step()

    assert list((tmp_path / "trash").iterdir()) == []


def test_a_step_looks_at_no_more_than_it_removes(tmp_path: Path) -> None:
    """Of a million files each step looked at all."""
    looks: list[int] = []

    class Looking(LinuxFiles):
        def entries(self, path: str, most: int | None = None) -> list[FolderEntry]:
            found = super().entries(path, most)
            looks.append(len(found))
            return found

    (tmp_path / "scratch").mkdir()
    for number in range(100):
        (tmp_path / "scratch" / str(number)).touch()
    removal = Removal(Looking(), str(tmp_path / "trash"))
    removal.remove(str(tmp_path / "scratch"))
    while removal.busy:
        removal.step(10)

    assert max(looks) <= 10
    assert sum(looks) == 100


def test_the_command_line_is_read_in_both_spellings() -> None:
    assert parse(["--state", "/s", "--log-cap-bytes=5", "--isolation", "none"]) == Settings(
        state="/s", logs="/s/logs", log_cap_bytes=5, isolation="none"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nonesuch", "1"], "--nonesuch"),
        (["--state"], "the value is missing"),
        ([], "state"),
        (["--state", "relative"], "an absolute path"),
        (["--state", "/s", "--log-cap-bytes", "-1"], "log_cap_bytes"),
        (["--state", "/s", "--isolation", "docker"], "isolation"),
    ],
)
def test_a_command_line_that_cannot_be_used_says_why(arguments: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse(arguments)


def scratch_folders(state: Path) -> ScratchFolders:
    return ScratchFolders(LinuxFiles(), str(state), Removal(LinuxFiles(), f"{state}/trash"))


def test_a_scratch_folder_that_is_left_as_it_was_goes_to_the_next_job(tmp_path: Path) -> None:
    scratch = scratch_folders(tmp_path)
    first, second = scratch.take(), scratch.take()
    scratch.give_back(first, is_left=True)

    assert first != second
    assert scratch.take() == first
    assert list(Path(first).iterdir()) == []


@pytest.mark.parametrize("spoil", ["file", "hidden", "mode", "alive", "link"])
def test_a_scratch_folder_that_is_not_as_it_was_goes_to_nobody(tmp_path: Path, spoil: str) -> None:
    scratch = scratch_folders(tmp_path)
    folder = Path(scratch.take())
    match spoil:
        case "file":
            (folder / "left").touch()
        case "hidden":
            (folder / ".left").touch()
        case "mode":
            folder.chmod(0o777)
        case "link":
            folder.rmdir()
            folder.symlink_to(tmp_path)
    scratch.give_back(str(folder), is_left=spoil != "alive")

    assert list((tmp_path / "scratch").iterdir()) == []
    assert scratch.take() != str(folder)


def test_no_job_gets_a_scratch_folder_of_a_former_runner(tmp_path: Path) -> None:
    """It may not be empty, and there may be something that cannot be removed."""
    former = scratch_folders(tmp_path)
    left = [former.take(), former.take()]

    assert scratch_folders(tmp_path).take() not in left
