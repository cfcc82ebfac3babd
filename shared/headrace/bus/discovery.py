"""Answers to NATS service discovery, so that `nats micro ls`, `info` and `stats` show this process.

The subjects are `$SRV.<verb>`, `$SRV.<verb>.<name>` and `$SRV.<verb>.<name>.<id>`. The answers are JSON as specified by
ADR-32. nats-py's own service framework is not used: its handlers run one after another, and its errors carry the
exception's text to the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from headrace.bus.serving import Serving

_ENDPOINT = re.compile(r"[^A-Za-z0-9_-]+")


class ServiceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The name and version that service discovery shows for a process."""

    #: Kind of service, the same for all processes of the service: letters, digits, `-` and `_`.
    name: str
    #: Semantic version, such as `0.1.0`.
    version: str
    #: True if the process answers only the subject `$SRV.PING`, which asks all services. A node's process needs this, because its
    #: credential allows no other discovery subject.
    only_pinged: bool = False


class Discovery:
    """Builds the answers to service discovery. `servings` returns the subjects that are served now."""

    def __init__(
        self, info: ServiceInfo, instance: str, started: datetime, servings: Callable[[], Sequence[Serving]]
    ) -> None:
        self._info = info
        self._instance = instance
        self._started = started
        self._servings = servings

    def subjects(self) -> dict[str, Callable[[], bytes]]:
        """Return every discovery subject to listen on, with the function that builds its answer."""
        if self._info.only_pinged:
            return {"$SRV.PING": self.ping}
        answers: dict[str, Callable[[], bytes]] = {}
        for verb, answer in (("PING", self.ping), ("INFO", self.info), ("STATS", self.stats)):
            for subject in (verb, f"{verb}.{self._info.name}", f"{verb}.{self._info.name}.{self._instance}"):
                answers[f"$SRV.{subject}"] = answer
        return answers

    def ping(self) -> bytes:
        """Return the answer that names this process."""
        return msgspec.json.encode(self._standard("ping"))

    def info(self) -> bytes:
        """Return the answer that lists the served subjects."""
        endpoints = [
            {**self._endpoint(serving), "metadata": {}}  # the schema requires the field
            for serving in self._servings()
        ]
        return msgspec.json.encode({**self._standard("info"), "description": "", "endpoints": endpoints})

    def stats(self) -> bytes:
        """Return the answer with the counts of each served subject. Times are in nanoseconds."""
        endpoints = []
        for serving in self._servings():
            counts = serving.statistics()
            endpoints.append(
                {
                    **self._endpoint(serving),
                    "num_requests": counts["received"],
                    "num_errors": counts["failed"],
                    "last_error": serving.last_error,
                    "processing_time": serving.busy_ns,
                    "average_processing_time": serving.busy_ns // max(1, counts["received"]),
                    "data": serving.described(),
                }
            )
        started = self._started.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return msgspec.json.encode({**self._standard("stats"), "started": started, "endpoints": endpoints})

    def _standard(self, kind: str) -> dict[str, Any]:
        return {
            "type": f"io.nats.micro.v1.{kind}_response",
            "name": self._info.name,
            "id": self._instance,
            "version": self._info.version,
            "metadata": {},
        }

    @staticmethod
    def _endpoint(serving: Serving) -> dict[str, Any]:
        name = _ENDPOINT.sub("-", serving.subject).strip("-") or "all"
        return {"name": name, "subject": serving.subject, "queue_group": serving.queue}
