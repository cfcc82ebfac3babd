"""Random requests to the HTTP API by Schemathesis, which compares each answer with the description of the API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from headrace_web.app import OPENAPI_FILE

__all__ = ["send_random_requests"]

#: Random commands are not started, the node stays, and streams without an end are left out.
_LEFT_OUT: Final = ("start_operation", "remove_node", "follow_events", "read_logs")
_CHECKS: Final = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def send_random_requests(
    origin: str, header_file: Path, folder: Path, *, examples: int, seed: int
) -> subprocess.CompletedProcess[str]:
    """Send this number of requests at most to each endpoint. The status is 0 if every answer is as described."""
    argv = [sys.executable, "-m", "schemathesis.cli", "run", str(OPENAPI_FILE), "--url", origin]
    argv += ["-H", header_file.read_text(encoding="ascii").strip(), "--checks", _CHECKS, "--seed", str(seed)]
    argv += ["--phases", "fuzzing", "--max-examples", str(examples), "--continue-on-failure", "--no-color"]
    argv += [word for name in _LEFT_OUT for word in ("--exclude-operation-id", name)]
    return subprocess.run(argv, capture_output=True, text=True, cwd=folder, timeout=3_600)
