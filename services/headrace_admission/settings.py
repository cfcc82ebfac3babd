"""Settings of admission."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.runtime.settings import CommonSettings


class AdmissionSettings(CommonSettings, frozen=True, kw_only=True):
    """Starts operations, keeps the ledger of their jobs, enrols nodes."""

    #: How many finished operations are remembered; the oldest are forgotten first.
    keep_finished: int = 10_000
    #: Bytes of memory that finished operations may take; the oldest are forgotten first.
    keep_finished_bytes: Annotated[int, msgspec.Meta(ge=0)] = 128 * 1024 * 1024
    #: Entries of the log that are kept behind a checkpoint, as history, and the bytes of the whole log.
    keep_entries: int = 100_000
    keep_bytes: int = 1024 * 1024 * 1024
    #: A checkpoint is written after this many events or bytes of the log, and when the service stops.
    checkpoint_events: int = 20_000
    checkpoint_bytes: int = 64 * 1024 * 1024
    #: A request whose event is not durable by then is answered «not recorded; the same id may be retried».
    answer_deadline_ms: int = 2_000
    #: More requests waiting for the log than this, or the oldest for longer: busy, nothing was done.
    most_waiting: int = 10_000
    longest_waiting_ms: int = 2_000
    #: Starts that are decided and wait for the log, and their bytes: as much as two entries hold, one on its way and one that is being
    #: filled. The rest waits, and everybody has a turn.
    most_starts_at_once: int = 2_000
    most_bytes_of_starts_at_once: int = 512 * 1024
    #: How long a request that names a revision of the pool configuration waits for it.
    revision_wait_ms: int = 2_000
    #: How often the log's position is told, so that a reader that missed the last entry notices.
    tell_period_ms: int = 1_000
    #: Operations of all trees together; one more is refused.
    max_operation_count: int = 5_000
    #: The same for each user; nothing: half of that, so that nobody alone shuts all others out.
    max_operation_count_per_user: Annotated[int, msgspec.Meta(ge=1)] | None = None
    #: Bytes of memory that live operations may take, those of all users together: their commands, environments and results of jobs. One
    #: more is refused. The default fits a service with 2 GB of memory.
    most_operation_bytes: Annotated[int, msgspec.Meta(ge=1)] = 512 * 1024 * 1024
    #: The same for each user; nothing: half of that.
    most_operation_bytes_of_a_user: Annotated[int, msgspec.Meta(ge=1)] | None = None
    #: No operation makes an ephemeral pool by naming one that does not exist.
    require_specified_pools_existence: bool = False
    #: Operations may be moved to another pool.
    pool_change_is_allowed: bool = True
    #: How often everybody who waits at a pool is judged anew.
    pending_by_pool_operation_scan_period_ms: int = 60_000
    #: Archives of files that people sent for their operations, in bytes, of each user and of all.
    most_archive_bytes_of_a_user: Annotated[int, msgspec.Meta(ge=0)] = 512 * 1024 * 1024
    most_archive_bytes: Annotated[int, msgspec.Meta(ge=0)] = 4 * 1024 * 1024 * 1024
    #: An archive that no operation was started with is removed after this.
    unused_archive_ms: Annotated[int, msgspec.Meta(ge=1_000)] = 3_600_000

    #: File with the keys by which hosts join, readable by its owner only; empty: no host joins by a token.
    authority_file: str = ""
    #: How long the token of a host can be used.
    token_ms: Annotated[int, msgspec.Meta(ge=1_000, le=86_400_000)] = 600_000
    #: How long the credential of a node that joined lasts. Its agent renews it from half of that on.
    node_credential_ms: Annotated[int, msgspec.Meta(ge=2_000, le=366 * 86_400_000)] = 30 * 86_400_000

    @property
    def most_operations_of_a_user(self) -> int:
        """The limit for each user."""
        own = self.max_operation_count_per_user
        return (self.max_operation_count + 1) // 2 if own is None else own

    @property
    def most_bytes_of_a_user(self) -> int:
        """The bytes that live operations of each user may take."""
        own = self.most_operation_bytes_of_a_user
        return (self.most_operation_bytes + 1) // 2 if own is None else own
