"""The bus: the one place that knows what carries messages, buckets and logs between processes.

`protocol` says what can be asked of it. `connect` makes one over NATS. What the rest of the package cures stands where it is cured.
"""

from __future__ import annotations

from headrace.bus.discovery import ServiceInfo
from headrace.bus.group_commit import MAX_GROUP_BYTES, AppenderFenced, GroupAppender
from headrace.bus.nats.bus import connect
from headrace.bus.nats.connecting import Credential
from headrace.bus.protocol import (
    MAX_MESSAGE_BYTES,
    MAX_PENDING_BYTES,
    AppendRefused,
    AppendUnknown,
    Bus,
    BusClosed,
    BusError,
    ConnectionLost,
    CredentialRefused,
    DamagedValue,
    Entry,
    Handler,
    Inbox,
    KeyValue,
    Log,
    LogEntry,
    Message,
    Mirror,
    MissingStore,
    Newest,
    NoResponders,
    NotConnected,
    PermissionRefused,
    Records,
    RequestTimeout,
    Senders,
    ServerTooOld,
    Subscription,
    TooLarge,
    Writes,
    WrongConfiguration,
    WrongRevision,
)
from headrace.bus.turns import GivingWay

__all__ = [
    "MAX_GROUP_BYTES",
    "MAX_MESSAGE_BYTES",
    "MAX_PENDING_BYTES",
    "AppendRefused",
    "AppendUnknown",
    "AppenderFenced",
    "Bus",
    "BusClosed",
    "BusError",
    "ConnectionLost",
    "Credential",
    "CredentialRefused",
    "DamagedValue",
    "Entry",
    "GivingWay",
    "GroupAppender",
    "Handler",
    "Inbox",
    "KeyValue",
    "Log",
    "LogEntry",
    "Message",
    "Mirror",
    "MissingStore",
    "Newest",
    "NoResponders",
    "NotConnected",
    "PermissionRefused",
    "Records",
    "RequestTimeout",
    "Senders",
    "ServerTooOld",
    "ServiceInfo",
    "Subscription",
    "TooLarge",
    "Writes",
    "WrongConfiguration",
    "WrongRevision",
    "connect",
]
