"""Files of an operation: a person sends them to admission in pieces, and the nodes that run the operation's jobs fetch
them from admission.

The files are sent as one archive. It is stored under its hash and the name of the person who sent it, so knowing the hash is not
enough to get the files of another person.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import OperationId
from headrace.wire.version import Counter

#: Size of every piece but the last, in bytes. A piece fits into a message.
PIECE_BYTES = 256 * 1024
#: Largest archive, in bytes, as it is sent.
LARGEST_ARCHIVE_BYTES = 64 * 1024 * 1024
#: Largest total size of the files in an archive, in bytes.
LARGEST_CONTENT_BYTES = 1024 * 1024 * 1024
#: Largest number of files in an archive.
MOST_FILES = 20_000
#: Longest path of a file within its archive, in bytes. On the node the path of the operation's folder is put in front
#: of this path; the limit leaves space for that.
LONGEST_NAME_BYTES = 2_048
#: Longest component of the path of a file, in bytes. This is the limit of Linux file systems.
LONGEST_PART_BYTES = 255
#: Largest number of components of the path of a file: the file itself and the folders above it.
MOST_NAME_PARTS = 100
#: Longest target of a symbolic link, in bytes. This is the limit of Linux.
LONGEST_TARGET_BYTES = 4_095
#: Largest number of operations in one `AskOver` request.
MOST_OPERATIONS_ASKED = 500

_MOST_PIECES = LARGEST_ARCHIVE_BYTES // PIECE_BYTES
_PieceNumber = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_PIECES)]
_Operations = Annotated[
    list[Annotated[OperationId, msgspec.Meta(max_length=200)]], msgspec.Meta(max_length=MOST_OPERATIONS_ASKED)
]


class Archive(msgspec.Struct, frozen=True):
    """Identity of an archive: the hash of its bytes and its size."""

    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z", max_length=64)]
    size_bytes: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_ARCHIVE_BYTES)]
    #: Number of files and folders in the archive, as its sender counted them.
    file_count: Counter = 0

    @property
    def piece_count(self) -> int:
        """The number of pieces of the archive."""
        return -(-self.size_bytes // PIECE_BYTES)

    def piece_bytes(self, piece: int) -> int:
        """Return the size of a piece in bytes. Pieces count from 0."""
        return min(PIECE_BYTES, self.size_bytes - piece * PIECE_BYTES)


class Upload(msgspec.Struct, frozen=True):
    """person → admission: send a piece of an archive. A message without data asks which pieces are missing."""

    archive: Archive
    piece: _PieceNumber = 0
    data: Annotated[bytes, msgspec.Meta(max_length=PIECE_BYTES)] = b""


class Uploaded(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The answer to `Upload`: the pieces that are still missing. If no piece is missing, an operation can be started with the archive."""

    missing: Annotated[list[_PieceNumber], msgspec.Meta(max_length=_MOST_PIECES)]


class FetchPiece(msgspec.Struct, frozen=True):
    """agent → admission: ask for a piece of the archive of an operation whose jobs run on the agent's node."""

    operation: Annotated[OperationId, msgspec.Meta(max_length=200)]
    piece: _PieceNumber
    #: Hash of the archive. A node learns the hash only from its first order to start a job of the operation, so the hash proves
    #: that the node was given such a job. Agents of former versions send no hash, and get no piece.
    sha256: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Piece(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The bytes of a piece."""

    data: Annotated[bytes, msgspec.Meta(max_length=PIECE_BYTES)]


class AskOver(msgspec.Struct, frozen=True):
    """agent → admission: ask which of these operations are over, so that the agent may delete their files."""

    operations: _Operations


class Over(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The operations that are over or no longer known."""

    operations: _Operations
