"""Settings of admission."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.runtime.settings import CommonSettings


class AdmissionSettings(CommonSettings, frozen=True, kw_only=True):
    """Starts operations, keeps the ledger of their jobs, enrols nodes."""

    #: Number of finished operations that are remembered. Beyond it, the oldest operation of the user with the largest share is
    #: forgotten.
    keep_finished: int = 10_000
    #: Bytes of memory that finished operations may take. Beyond them, the oldest operation of the user with the largest share is
    #: forgotten.
    keep_finished_bytes: Annotated[int, msgspec.Meta(ge=0)] = 128 * 1024 * 1024
    #: Number of log entries that are kept as history after a checkpoint covers them.
    keep_entries: int = 100_000
    #: Upper bound of the bytes of the whole log.
    keep_bytes: int = 1024 * 1024 * 1024
    #: Number of recorded events after which a checkpoint is written. A checkpoint is also written when the service stops.
    checkpoint_events: int = 20_000
    #: Number of recorded bytes after which a checkpoint is written.
    checkpoint_bytes: int = 64 * 1024 * 1024
    #: Time within which the event of a request must be durable. If it takes longer, the answer is "not recorded; the same id may be
    #: retried".
    answer_deadline_ms: int = 2_000
    #: Largest number of requests that may wait for the log. If more requests wait, new requests are refused as busy, without any effect.
    most_waiting: int = 10_000
    #: Longest time for which a request may wait for the log. If the oldest request waits longer, new requests are refused as busy, too.
    longest_waiting_ms: int = 2_000
    #: Largest number of starts that are decided and wait for the log. Further starts wait, and the users take turns.
    most_starts_at_once: int = 2_000
    #: Largest number of bytes of the starts that are decided and wait for the log. The default is what two entries of the log hold:
    #: one entry is being written while the next is filled.
    most_bytes_of_starts_at_once: int = 512 * 1024
    #: Time that a request waits for the revision of the pool configuration that it names.
    revision_wait_ms: int = 2_000
    #: Period in which the position of the log is published. By the position, readers notice that they missed the last entry.
    tell_period_ms: int = 1_000
    #: Upper bound of live operations of all trees together; further starts are refused.
    max_operation_count: int = 5_000
    #: Upper bound of live operations of each user; unset: half of `max_operation_count`, so that no single user can shut out
    #: all other users.
    max_operation_count_per_user: Annotated[int, msgspec.Meta(ge=1)] | None = None
    #: Bytes of memory that live operations of all users together may take: their commands, environments and results of jobs.
    #: Further starts are refused. The default fits a service with 2 GB of memory.
    most_operation_bytes: Annotated[int, msgspec.Meta(ge=1)] = 512 * 1024 * 1024
    #: Bytes of memory that live operations of each user may take; unset: half of `most_operation_bytes`.
    most_operation_bytes_of_a_user: Annotated[int, msgspec.Meta(ge=1)] | None = None
    #: True: an operation that names a pool that does not exist is refused; no ephemeral pool is made.
    require_specified_pools_existence: bool = False
    #: True: operations may be moved to another pool.
    pool_change_is_allowed: bool = True
    #: Period of scans. A scan starts all waiting operations that may run, and finds operations whose jobs exceed the limits of their pools.
    pending_by_pool_operation_scan_period_ms: int = 60_000
    #: Time after which an operation fails if each of its jobs is larger than the resource limits of a pool.
    limiting_ancestor_safe_timeout_ms: Annotated[int, msgspec.Meta(ge=0)] = 300_000
    #: Bytes that the files of operations of one user may take. They are kept in archives.
    most_archive_bytes_of_a_user: Annotated[int, msgspec.Meta(ge=0)] = 512 * 1024 * 1024
    #: Bytes that the files of operations of all users together may take.
    most_archive_bytes: Annotated[int, msgspec.Meta(ge=0)] = 4 * 1024 * 1024 * 1024
    #: Time after which an archive is removed if no operation was started with it.
    unused_archive_ms: Annotated[int, msgspec.Meta(ge=1_000)] = 3_600_000

    #: True: the groups that this host knows for an account with the name of a person (NSS: /etc/group, LDAP, ...) count as groups of
    #: that person. A person who works on another host gets the groups of the account with the same name on this host.
    groups_of_host: bool = False
    #: True: the groups that the operator wrote into the credential of a person (`headrace user add --groups`) count as groups of the person
    #: while the person is connected with the credential. Needs `authority_file`.
    groups_of_login: bool = False
    #: Time after which ended runs are added to the records of consumption.
    consumption_period_ms: Annotated[int, msgspec.Meta(ge=100)] = 60_000
    #: Number of days for which the consumption of single operations is kept.
    keep_operation_consumption_days: Annotated[int, msgspec.Meta(ge=1, le=36_500)] = 400
    #: Number of days for which the consumption of each day is kept.
    keep_daily_consumption_days: Annotated[int, msgspec.Meta(ge=1, le=36_500)] = 1_100
    #: Number of days for which the consumption of months and years is kept.
    keep_consumption_days: Annotated[int, msgspec.Meta(ge=1, le=36_500)] = 3_660
    #: Upper bound of the bytes of all records of consumption. Beyond it the oldest records of single operations are removed, but not
    #: those of the last 30 days.
    keep_consumption_bytes: Annotated[int, msgspec.Meta(ge=0)] = 2 * 1024 * 1024 * 1024

    #: Bytes that all connections of one person, node or host together may send to the server in a second. A person, node or host that
    #: sends more for some seconds is held out for a while. This needs an `authority_file`.
    most_sent_bytes_per_s: Annotated[int, msgspec.Meta(ge=1024 * 1024)] = 64 * 1024 * 1024
    #: Messages that all connections of one person, node or host together may send to the server in a second.
    most_sent_messages_per_s: Annotated[int, msgspec.Meta(ge=1_000)] = 20_000
    #: Time for which a person, node or host is held out after a flood. It is four times longer after each further flood, up to an hour.
    flood_pause_ms: Annotated[int, msgspec.Meta(ge=1_000, le=3_600_000)] = 30_000
    #: File with the keys by which hosts join, readable by its owner only; empty: hosts cannot join by a token, and no flood is ended.
    authority_file: str = ""
    #: Time for which the token of a host can be used.
    token_ms: Annotated[int, msgspec.Meta(ge=1_000, le=86_400_000)] = 600_000
    #: Lifetime of the credential of a node that joined. Its agent renews the credential after half of this time.
    node_credential_ms: Annotated[int, msgspec.Meta(ge=2_000, le=366 * 86_400_000)] = 30 * 86_400_000

    @property
    def most_operations_of_a_user(self) -> int:
        """Return the upper bound of live operations of each user."""
        own = self.max_operation_count_per_user
        return (self.max_operation_count + 1) // 2 if own is None else own

    @property
    def most_bytes_of_a_user(self) -> int:
        """Return the bytes that live operations of each user may take."""
        own = self.most_operation_bytes_of_a_user
        return (self.most_operation_bytes + 1) // 2 if own is None else own
