"""The bus: the only package that knows what carries messages, buckets and logs between processes.

`protocol` defines the operations. `connect` opens a bus over NATS. If a module works around a fault of nats-py, a text in that module
describes the fault.
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
    HeardWrites,
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
    ServerNotTrusted,
    ServerTooOld,
    Subscription,
    TooLarge,
    Writes,
    WrongConfiguration,
    WrongRevision,
)
from headrace.bus.turns import YieldBudget

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
    "GroupAppender",
    "Handler",
    "HeardWrites",
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
    "ServerNotTrusted",
    "ServerTooOld",
    "ServiceInfo",
    "Subscription",
    "TooLarge",
    "Writes",
    "WrongConfiguration",
    "WrongRevision",
    "YieldBudget",
    "connect",
]
