"""Files of an operation: sent to admission in pieces, and fetched from there by the nodes that run its jobs.

They are one archive, named by its hash and by the person who sent it. So nobody gets another's files by knowing their hash.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import OperationId
from headrace.wire.version import Counter

#: Of each piece but the last. A message has room for it.
PIECE_BYTES = 256 * 1024
#: Of an archive, as it is sent.
LARGEST_ARCHIVE_BYTES = 64 * 1024 * 1024
#: Of all files of an archive together, and their number.
LARGEST_CONTENT_BYTES = 1024 * 1024 * 1024
MOST_FILES = 20_000
#: Of the path of a file within its archive: room is left for the folder of the operation on the node.
LONGEST_NAME_BYTES = 2_048
#: Of one part of such a path, as the file systems of Linux have it.
LONGEST_PART_BYTES = 255
#: Parts of such a path: the file itself and the folders above it.
MOST_NAME_PARTS = 100
#: Of the target of a symbolic link, as Linux has it.
LONGEST_TARGET_BYTES = 4_095
#: Of one question.
MOST_OPERATIONS_ASKED = 500

_MOST_PIECES = LARGEST_ARCHIVE_BYTES // PIECE_BYTES
_PieceNumber = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_PIECES)]
_Operations = Annotated[
    list[Annotated[OperationId, msgspec.Meta(max_length=200)]], msgspec.Meta(max_length=MOST_OPERATIONS_ASKED)
]


class Archive(msgspec.Struct, frozen=True):
    """The name of an archive: the hash of its bytes and their number."""

    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z", max_length=64)]
    size_bytes: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_ARCHIVE_BYTES)]
    #: Files and folders in it, as its sender counted them.
    file_count: Counter = 0

    @property
    def piece_count(self) -> int:
        """The number of its pieces."""
        return -(-self.size_bytes // PIECE_BYTES)

    def piece_bytes(self, piece: int) -> int:
        """The bytes of one piece."""
        return min(PIECE_BYTES, self.size_bytes - piece * PIECE_BYTES)


class Upload(msgspec.Struct, frozen=True):
    """person → admission: a piece of an archive. Without data it asks which pieces are missing."""

    archive: Archive
    piece: _PieceNumber = 0
    data: Annotated[bytes, msgspec.Meta(max_length=PIECE_BYTES)] = b""


class Uploaded(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The pieces that are missing yet. Without any an operation may be started with the archive."""

    missing: Annotated[list[_PieceNumber], msgspec.Meta(max_length=_MOST_PIECES)]


class FetchPiece(msgspec.Struct, frozen=True):
    """agent → admission: a piece of the archive of an operation that has jobs to run there."""

    operation: Annotated[OperationId, msgspec.Meta(max_length=200)]
    piece: _PieceNumber
    #: The hash of the archive. A node learns it with its first order to start a job of the operation, and nowhere else: it is the proof
    #: that the node was given such a job. Agents of former versions send none, and get nothing.
    sha256: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Piece(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The bytes of a piece."""

    data: Annotated[bytes, msgspec.Meta(max_length=PIECE_BYTES)]


class AskOver(msgspec.Struct, frozen=True):
    """agent → admission: which of these operations are over, so that their files may go?"""

    operations: _Operations


class Over(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Those that are over, or that nobody knows any more."""

    operations: _Operations
