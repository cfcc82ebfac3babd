"""Consumption: core-, memory- and GPU-seconds of finished runs, by day, pool, person and operation, kept for years.

admission counts each finished run in one record of each `Level`. A record holds many rows. Clients get the stored records, and
add up the rows themselves.
"""

from __future__ import annotations

import enum
import zlib
from array import array
from operator import add
from typing import Annotated, Final

import msgspec

from headrace.errors import HeadraceError
from headrace.wire.integral import NotNegative
from headrace.wire.version import Counter

#: Largest size in bytes of a decompressed record. A larger record is not read.
_LARGEST_UNPACKED_BYTES: Final = 64 * 1024 * 1024
#: Pattern of a period: a year, a month or a day (UTC), such as `2026`, `2026.11` or `2026.11.28`.
PERIOD_PATTERN: Final = r"\A[0-9]{4}(\.[0-9]{2}(\.[0-9]{2})?)?\Z"


class BadRecord(HeadraceError):
    """A stored record of consumption cannot be read."""


class Level(enum.StrEnum):
    """The kinds of records. They differ in the length of the period that a record covers, and in what has rows of its own."""

    #: One day, with a row for each operation.
    OPERATIONS = "operations"
    #: One day, with a row for each pool and none for persons. A year of such rows is a fiftieth of that of `days`.
    POOLS = "pools"
    DAYS = "days"
    MONTHS = "months"
    YEARS = "years"


class RunSums(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Sums over finished runs, or over the parts of runs that fall into a period."""

    #: Number of runs that ended in the period.
    runs: Counter = 0
    #: Number of these runs whose CPU time and peak memory were measured.
    measured_runs: Counter = 0
    #: Allotted core-, byte- and GPU-seconds: the resources of each job, multiplied by the time that its run took.
    allotted_core_s: NotNegative = 0.0
    allotted_byte_s: NotNegative = 0.0
    allotted_gpu_s: NotNegative = 0.0
    #: Measured CPU time.
    used_core_s: NotNegative = 0.0
    #: Peak memory times the time that the run took: an upper bound of the memory in use.
    used_byte_s: NotNegative = 0.0
    #: Core-, byte- and GPU-seconds that were allotted to preempted runs, except runs that saved their state or were done when they ended.
    preempted_core_s: NotNegative = 0.0
    preempted_byte_s: NotNegative = 0.0
    preempted_gpu_s: NotNegative = 0.0
    #: Core-, byte- and GPU-seconds that were allotted to runs that failed, timed out or were lost with their node.
    failed_core_s: NotNegative = 0.0
    failed_byte_s: NotNegative = 0.0
    failed_gpu_s: NotNegative = 0.0

    def __add__(self, other: RunSums) -> RunSums:
        return RunSums(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class ConsumptionRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The sums of one person in one pool. At the level `operations` each row is about one operation of that person, at the
    level `pools` about all persons in the pool, and names no person.

    If a record would be too large, its smallest rows are merged: a row for several operations of a person names no
    operation, and a row for several persons of a tree names no pool and no person.
    """

    tree: str
    #: Path of the pool at the time of the run, from the top of the tree, such as `research/vision`.
    pool: str
    user: str
    #: Empty except at the level `operations`.
    operation: str
    sums: RunSums


class ConsumptionRecord(msgspec.Struct, frozen=True):
    """The content of a stored record."""

    #: Sequence number of the last log entry whose finished runs are counted in the rows.
    until: Counter
    rows: list[ConsumptionRow]


class StoredRecord(msgspec.Struct, frozen=True):
    """A record as it is stored."""

    #: Level, period and number of the record, such as `days.2026.11.28.07`. If a client gets two records with the same key, the
    #: record that it gets later replaces the other record.
    key: str
    data: bytes


class GetConsumption(msgspec.Struct, frozen=True):
    """person → admission: ask for all records of a level in a period."""

    level: Level
    #: A year, a month or a day (UTC), such as `2026`, `2026.11` or `2026.11.28`.
    period: Annotated[str, msgspec.Meta(pattern=PERIOD_PATTERN, max_length=10)]
    #: `next` of the page before; 0 for the first page.
    after: Counter = 0


class ConsumptionPage(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of records."""

    records: list[StoredRecord]
    #: Value of `after` in the request for the next page; null on the last page.
    next: Counter | None = None
    #: Number of days for which records of the level are kept.
    kept_days: Counter = 0
    #: Unix time in milliseconds since which runs are counted; 0: not known.
    begun_ms: Counter = 0
    #: Number of runs that are known not to be counted.
    lost_runs: Counter = 0


class Columns(msgspec.Struct, frozen=True):
    """A record as it is stored, by columns: a year has many records, and programs add up columns far faster than rows."""

    until: Counter
    #: Every tree, pool, person and operation that a row names, each text once.
    names: list[str]
    #: For each row the positions of its tree, pool, person and operation in `names`, as little-endian unsigned integers of four bytes.
    keys: bytes
    #: For each row the fields of `RunSums`, as little-endian floats of eight bytes.
    figures: bytes


#: Numbers of texts (tree, pool, person, operation) and of figures in one row.
KEYS_OF_ROW: Final = 4
FIGURES_OF_ROW: Final = len(RunSums.__struct_fields__)
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Columns)


def pack(record: ConsumptionRecord) -> bytes:
    """Return a record as it is stored: its columns in msgpack, compressed by zlib."""
    places: dict[str, int] = {}
    keys, figures = array("I"), array("d")
    for row in record.rows:
        for name in (row.tree, row.pool, row.user, row.operation):
            keys.append(places.setdefault(name, len(places)))
        figures.extend(msgspec.structs.astuple(row.sums))
    columns = Columns(record.until, list(places), keys.tobytes(), figures.tobytes())
    return zlib.compress(_encoder.encode(columns), 1)


def unpack_columns(data: bytes) -> Columns:
    """Return the columns of a stored record. Raises `BadRecord`."""
    try:
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(data, _LARGEST_UNPACKED_BYTES)
        if not unpacking.eof:
            raise BadRecord("the record is cut off or too large")
        columns = _decoder.decode(plain)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(str(error)) from None
    rows, rest = divmod(len(columns.keys), 4 * KEYS_OF_ROW)
    if rest or len(columns.figures) != 8 * FIGURES_OF_ROW * rows:
        raise BadRecord("the columns have different lengths")
    return columns


def unpack(data: bytes) -> ConsumptionRecord:
    """Return a stored record with its rows. Raises `BadRecord`."""
    columns = unpack_columns(data)
    names, keys, figures = columns.names, array("I", columns.keys), array("d", columns.figures)
    rows = []
    try:
        for row in range(len(keys) // KEYS_OF_ROW):
            runs, measured, *sums = figures[row * FIGURES_OF_ROW : (row + 1) * FIGURES_OF_ROW]
            tree, pool, user, operation = (names[place] for place in keys[row * KEYS_OF_ROW : (row + 1) * KEYS_OF_ROW])
            rows.append(ConsumptionRow(tree, pool, user, operation, RunSums(int(runs), int(measured), *sums)))
    except (IndexError, ValueError, OverflowError) as error:
        raise BadRecord(str(error)) from None
    return ConsumptionRecord(columns.until, rows)
