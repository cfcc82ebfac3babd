"""The saved volumes: one key per tree, written by compare-and-set, so that a second process cannot write unnoticed."""

from __future__ import annotations

import msgspec

from headrace.bus import BusError, KeyValue, WrongRevision
from headrace.errors import HeadraceError
from headrace.ids import TreeName
from headrace.wire.codec import BadMessage, decode, encode
from headrace_integral.engine import VolumesRecord

__all__ = ["NotSaved", "UnreadableVolumes", "VolumeStore"]


class UnreadableVolumes(HeadraceError):
    """The saved volumes are none. They are not replaced by empty ones: put the key right or delete it."""


class NotSaved(HeadraceError):
    """The volumes could not be saved, or it is not known whether they were."""


class VolumeStore:
    """The saved record of one tree. While `certain` is false, what is stored must be read before anything is decided."""

    def __init__(self, bucket: KeyValue, tree: TreeName) -> None:
        self._bucket = bucket
        self._tree = tree
        self._revision = 0
        self.certain = False

    async def load(self) -> VolumesRecord | None:
        """Reads what is stored. Raises `BusError` where it cannot, `UnreadableVolumes` where it is something else."""
        entry = await self._bucket.get(self._tree)
        record: VolumesRecord | None = None
        if entry is not None:
            try:
                record = decode(entry.value, VolumesRecord)
            except BadMessage as error:
                raise UnreadableVolumes(f"{UnreadableVolumes.__doc__} ({self._tree}: {error})") from None
        self._revision = entry.revision if entry is not None else 0
        self.certain = True
        return record

    async def save(self, record: VolumesRecord) -> None:
        """Returns when the record is durable. Raises `NotSaved`, and then `certain` is false."""
        self.certain = False
        try:
            value = encode(record)
            self._revision = await self._bucket.update(self._tree, value, self._revision)
        except WrongRevision as error:
            raise NotSaved(f"somebody else wrote: {error}") from error
        except (BusError, msgspec.MsgspecError, HeadraceError) as error:
            raise NotSaved(str(error)) from error
        self.certain = True
