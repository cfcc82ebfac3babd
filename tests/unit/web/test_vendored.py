"""Files of others that the console brings along: unchanged, with their version and licence."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parents[3] / "services" / "headrace_web" / "page" / "static" / "vendor"


class Vendored(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    version: str
    licence: str
    source: str
    #: SHA-256 of each file.
    files: dict[str, str]


def test_each_file_of_others_is_the_one_that_was_released() -> None:
    listed = msgspec.json.decode((FOLDER / "vendored.json").read_bytes(), type=list[Vendored])
    expected = {name: digest for each in listed for name, digest in each.files.items()}
    there = {path.name: path for path in FOLDER.iterdir() if path.name != "vendored.json"}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()} == expected
    for each in listed:
        assert each.version
        assert any(name.endswith("LICENSE.txt") for name in each.files), f"{each.name} has no licence beside it"
