"""Packing and unpacking of files: the same contents give the same bytes and come out again, and no archive does harm."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import archive_members, archives
from headrace.archive_members import UnusableArchive
from headrace.archive_names import link_stays_inside
from headrace.archives import Packed, pack
from headrace.errors import BadInput
from headrace.ids import OperationId
from headrace_agent.files import unpacking
from headrace_agent.files.folders import OperationFolders

OPERATION = OperationId("0123456789abcdef")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data" / "empty").mkdir(parents=True)
    (folder / "work.sh").write_text("#!/bin/sh\n")
    (folder / "work.sh").chmod(0o755)
    (folder / "data" / "words").write_text("water\n")
    (folder / "data" / "latest").symlink_to("../work.sh")
    return folder


def whole(packed: Packed) -> bytes:
    return b"".join(map(packed.piece, range(packed.archive.piece_count)))


def unpack(archive: str, folder: str) -> None:
    """Unpacks into the folder at a path."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        unpacking.unpack(archive, opened)
    finally:
        os.close(opened)


def unpacked(packed: Packed, folder: Path) -> Path:
    folder.mkdir()
    archive = folder.with_suffix(".archive")
    archive.write_bytes(whole(packed))
    unpack(str(archive), str(folder))
    return folder


def test_what_was_packed_comes_out_again(project: Path, tmp_path: Path) -> None:
    packed = pack([project])
    found = unpacked(packed, tmp_path / "found")

    assert packed.archive.file_count == 5
    assert sorted(str(path.relative_to(found)) for path in found.rglob("*")) == [
        *("data", "data/empty", "data/latest", "data/words", "work.sh")
    ]
    assert (found / "data" / "words").read_text() == "water\n"
    assert os.access(found / "work.sh", os.X_OK)
    assert not os.access(found / "data" / "words", os.X_OK)
    assert (found / "data" / "latest").readlink() == Path("../work.sh")


def test_the_same_contents_give_the_same_bytes(project: Path, tmp_path: Path) -> None:
    first = pack([project]).archive
    os.utime(project / "work.sh", (0, 0))
    (project / "data" / "words").chmod(0o600)
    again = tmp_path / "again"
    again.mkdir()
    for name in ("work.sh", "data"):
        (project / name).rename(again / name)

    assert pack([again]).archive == first
    (again / "work.sh").chmod(0o644)
    assert pack([again]).archive.sha256 != first.sha256


def test_files_and_folders_go_together_under_their_names(project: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("x")
    (project / "data" / "latest").unlink()
    (project / "data" / "latest").symlink_to("words")

    (tmp_path / "named").symlink_to("notes")

    packed = pack(
        [
            tmp_path / "notes",
            tmp_path / "named",
            project / "data" / "empty",
            project / "data",
            project / "data" / "words",
        ]
    )

    names = sorted(path.name for path in unpacked(packed, tmp_path / "found").iterdir())
    assert names == ["empty", "latest", "named", "notes", "words"]
    assert (tmp_path / "found" / "named").read_text() == "x", "a link that was named is what it leads to"


def test_what_cannot_go_is_named(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*paths: Path) -> str:
        with pytest.raises(BadInput) as caught:
            pack(paths)
        return str(caught.value)

    (tmp_path / "work.sh").write_text("another")
    (tmp_path / "none").mkdir()
    assert "work.sh would both be stored as work.sh" in said(project, tmp_path / "work.sh")
    assert "missing" in said(tmp_path / "missing")
    assert "a file, or a folder that is not empty" in said(tmp_path / "none")
    (project / "out").symlink_to("/etc/passwd")
    assert "out -> /etc/passwd" in said(project)
    (project / "out").unlink()
    os.mkfifo(project / "pipe")
    assert "pipe' cannot be used; expected a file, a folder or a symbolic link" in said(project)
    (project / "pipe").unlink()
    (project / "data" / "large").write_bytes(os.urandom(5_000))
    monkeypatch.setattr(archives, "LARGEST_ARCHIVE_BYTES", 4_096)
    words = said(project)
    assert "4.898 KiB in 3 files, the largest data/large 4.883 KiB, work.sh 10 B" in words
    assert "packed they may have at most 4 KiB" in words
    monkeypatch.setattr(archives, "LARGEST_CONTENT_BYTES", 4_096)
    assert "at most 4 KiB are allowed, unpacked" in said(project)
    monkeypatch.setattr(archives, "MOST_FILES", 3)
    assert "at most 3" in said(project)


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def archive_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return str(path)


SYMLINK, LINK = tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([member("../evil", b"x")], "leads out of its folder"),
        ([member("/tmp/evil", b"x")], "leads out of its folder"),
        ([member("a/../../evil", b"x")], "leads out of its folder"),
        ([member("a/./evil", b"x")], "leads out of its folder"),
        ([member("evil", type=SYMLINK, linkname="/etc")], "the link 'evil' leads to '/etc', out of the archive"),
        ([member("evil", type=SYMLINK, linkname="../x")], "out of the archive"),
        ([member("a/evil", type=SYMLINK, linkname="b/../../..")], "out of the archive"),
        ([member("evil", type=LINK, linkname="/etc/passwd")], "is not a file, a folder or a link"),
        ([member("evil", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "is not a file, a folder"),
        ([member("evil", type=tarfile.FIFOTYPE)], "is not a file, a folder"),
        ([member("a", b"x"), member("a/b", b"x")], "is in it twice"),
        ([member("a", b"x"), member("a", b"y")], "is in it twice"),
        ([member("a", b"x"), member("a", type=SYMLINK, linkname="b")], "is in it twice"),
        ([member("x" * 300, b"x")], "the name 'x+' is too long: 300 bytes"),
        ([member("/".join(["d"] * 1200), b"x")], "has 1200 parts, more than 100"),
        ([member("/".join(["d" * 99] * 50), b"x")], "is too long: 4999 bytes, more than 2048 bytes"),
        ([member("evil", pax_headers={"path": "a\0b"})], "has a NUL in it"),
        ([member("evil", type=SYMLINK, linkname="x", pax_headers={"linkpath": "a\0b"})], "empty or has a NUL in it"),
        ([member("evil", type=SYMLINK, linkname="")], "empty or has a NUL in it"),
        ([member("evil", type=SYMLINK, linkname="a" * 5000)], "has a target of 5000 bytes, more than 4095"),
        ([member("evil", pax_headers={"comment": "x" * 2**21})], "bytes of records about one file"),
        ([member("evil", pax_headers={f"x{number}": "" for number in range(101)})], "more than 100 records"),
        ([member("evil", b"x", pax_headers={"GNU.sparse.major": "1"})], "only plain files are unpacked"),
        ([member("evil", b"x", type=tarfile.GNUTYPE_SPARSE)], "is not a file, a folder or a link"),
        ([member("evil", b"x", type=tarfile.GNUTYPE_LONGNAME)], "is not a file, a folder or a link"),
    ],
)
def test_an_archive_that_would_do_harm_is_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], said: str
) -> None:
    (tmp_path / "into").mkdir()

    with pytest.raises(UnusableArchive, match=said):
        unpack(archive_of(tmp_path / "archive", *members), str(tmp_path / "into"))

    assert sorted(os.listdir(tmp_path)) == ["archive", "into"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    sly = [member("a", type=tarfile.DIRTYPE), member("b", type=SYMLINK, linkname="a"), member("b/evil", b"x")]

    with pytest.raises(UnusableArchive, match="'b' is in it twice"):
        unpack(archive_of(tmp_path / "archive", *sly), str(tmp_path / "into"))

    assert os.listdir(tmp_path / "into" / "a") == []


def test_a_bomb_is_refused_before_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_members, "LARGEST_CONTENT_BYTES", 1_000)
    monkeypatch.setattr(archive_members, "MOST_FILES", 3)
    large = archive_of(tmp_path / "large", member("a", bytes(600)), member("b", bytes(600)))
    many = archive_of(tmp_path / "many", *(member(str(number)) for number in range(4)))
    deep = archive_of(tmp_path / "deep", member("a/b/c/d/e"))

    for number, (archive, said) in enumerate(
        [(large, "unpacks to more than 1000 bytes"), (many, "has more than 3 files"), (deep, "has more than 3 files")]
    ):
        into = tmp_path / str(number)
        into.mkdir()
        with pytest.raises(UnusableArchive, match=said):
            unpack(archive, str(into))
        assert not (into / "b").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:20] + bytes(20) + data[40:],
        lambda data: b"no archive",
        lambda data: gzip.compress(b"\xff" * 2_000),
    ],
)
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    whole = Path(archive_of(tmp_path / "archive", member("a", os.urandom(50_000))))
    whole.write_bytes(damage(whole.read_bytes()))
    (tmp_path / "into").mkdir()

    with pytest.raises(UnusableArchive, match="damaged"):
        unpack(str(whole), str(tmp_path / "into"))


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=3), st.lists(st.sampled_from(["..", "a", "."]), max_size=6))
def test_a_link_that_stays_inside_does_so_by_its_name_alone(above: list[str], target: list[str]) -> None:
    name, link = "/".join([*above, "link"]), "/".join(target)

    if link_stays_inside(name, link):
        assert not os.path.normpath("/root/" + "/".join(above) + "/" + link).startswith("/..")
        assert os.path.normpath("x/" + "/".join([*above, link])).split("/")[0] == "x"


def test_folders_appear_whole_and_what_former_lives_left_is_removed(project: Path, tmp_path: Path) -> None:
    folders = OperationFolders(str(tmp_path / "files"))
    (tmp_path / "files" / "another-boot" / OPERATION).mkdir(parents=True)
    packed = pack([project])
    with folders.archive(OPERATION) as path:
        Path(path).write_bytes(whole(packed))
        folders.unpack(OPERATION, path, "")
    here = Path(folders.folder)
    (here / ".unfinished-more").mkdir()
    (here / ".unfinished-more" / "locked").mkdir(mode=0o500)

    folders.remove_left_over()

    assert folders.found() == [OPERATION]
    assert sorted(os.listdir(tmp_path / "files")) == sorted([".trash", here.name])
    assert (os.listdir(here), os.listdir(tmp_path / "files" / ".trash")) == ([OPERATION], [])
    folders.remove(OPERATION)
    assert list(here.iterdir()) == []
    folders.remove(OPERATION)


def test_an_archive_that_cannot_be_unpacked_leaves_nothing(tmp_path: Path) -> None:
    folders = OperationFolders(str(tmp_path / "files"))

    with folders.archive(OPERATION) as path, pytest.raises(UnusableArchive):
        folders.unpack(OPERATION, archive_of(Path(path), member("a", b"x"), member("../evil", b"x")), "")

    assert list(Path(folders.folder).iterdir()) == []
