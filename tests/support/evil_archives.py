"""Archives that are made to do harm, each with what is said of it."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import zlib
from functools import cache
from typing import Final, NamedTuple

from headrace.wire.files import MOST_FILES

SYMLINK: Final = tarfile.SYMTYPE


class Evil(NamedTuple):
    """An archive, and words of the reason for which it is refused."""

    data: bytes
    said: str


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """A member of a tar file."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """The bytes of a tar file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """The bytes of an archive."""
    return gzip.compress(tar_of(*members), 1)


def header(name: str, size_bytes: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A tar header that says of a file what `tarfile` would never write."""
    size = (256**12 + size_bytes).to_bytes(13, "big")[1:] if size_bytes < 0 else b"%011o\0" % size_bytes
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    block[124:136], block[156:157], block[148:156] = size, kind, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def bomb(size_bytes: int) -> bytes:
    """A small archive with one file of zeros."""
    squeezed = zlib.compressobj(9, wbits=31)
    parts = [squeezed.compress(header("zeros", size_bytes))]
    parts += [squeezed.compress(bytes(2**20)) for _ in range(size_bytes // 2**20)]
    return b"".join([*parts, squeezed.flush()])


@cache
def evil_archives() -> dict[str, Evil]:
    """All by their names. Each is small."""
    harmless = packed(member("a", b"x"))
    chain = b"".join(header("x", 0, tarfile.GNUTYPE_LONGNAME) for _ in range(2_000))
    back = b"".join(header("x", -1024) for _ in range(50))
    many = gzip.compress(b"".join(header(str(number), 0) for number in range(MOST_FILES + 1)), 1)
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    return {
        "a path of 1,200 folders": Evil(packed(member("d/" * 1200 + "f", b"x")), "has 1201 parts, more than 100"),
        "a long name": Evil(packed(member("n" * 256)), "is too long: 256 bytes"),
        "a long path": Evil(packed(member("/".join(["n" * 200] * 20))), "is too long: 4019 bytes"),
        "a name with a NUL": Evil(packed(member("f", pax_headers={"path": "a\0b"})), "has a NUL in it"),
        "no name": Evil(packed(member("")), "leads out of its folder"),
        "a NUL in a target": Evil(
            packed(member("l", type=SYMLINK, linkname="x", pax_headers={"linkpath": "a\0b"})), "has a NUL in it"
        ),
        "a long target": Evil(packed(member("l", type=SYMLINK, linkname="a" * 5_000)), "has a target of 5000 bytes"),
        "an empty target": Evil(packed(member("l", type=SYMLINK, linkname="")), "is empty or has a NUL"),
        "a link out": Evil(packed(member("l", type=SYMLINK, linkname="../x")), "out of the archive"),
        "a hard link": Evil(packed(member("l", type=tarfile.LNKTYPE, linkname="x")), "is not a file, a folder"),
        "a device": Evil(packed(member("l", type=tarfile.CHRTYPE)), "is not a file, a folder or a link"),
        "a file below a link": Evil(
            packed(member("b", type=SYMLINK, linkname="a"), member("b/evil", b"x")), "'b' is in it twice"
        ),
        "headers about headers": Evil(gzip.compress(chain), "is not a file, a folder or a link"),
        "negative sizes": Evil(gzip.compress(back), "it unpacks to more than"),
        "a sparse file": Evil(packed(member("f", b"9" * 600, pax_headers=sparse)), "only plain files are unpacked"),
        "many records": Evil(packed(member("f", pax_headers={f"x{n}": "" for n in range(200)})), "records about one"),
        "many folders": Evil(packed(*(member("/".join(f"{n}{i:02}" for i in range(90))) for n in range(230))), "files"),
        "many files": Evil(many, "files and folders"),
        "a large file": Evil(gzip.compress(header("f", 2**40)), "it unpacks to more than"),
        "half of it": Evil(harmless[: len(harmless) // 2], "it is damaged"),
        "no archive": Evil(b"no archive", "it is damaged"),
        "nothing but rubbish": Evil(gzip.compress(random.Random(1).randbytes(2_000)), "it is damaged"),
    }
