"""What `headrace up` makes of the health of its NATS server, and of the folder that the server writes."""

from __future__ import annotations

import os
from pathlib import Path

from headrace_cli.up.server_health import obstacle_in, write_error_in


async def test_only_a_server_that_records_nothing_has_a_write_error(tmp_path: Path) -> None:
    answers = {
        b'{"server":{},"data":{"status":"ok","status_code":200}}': "",
        b'{"data":{"error":"JetStream stream \'$G > OPS\' write error: input/output error"}}': "input/output error",
        b'{"data":{"error":"JetStream not enabled"}}': "JetStream not enabled",
        b'{"data":{"error":"JetStream stream \'$G > OPS\' could not be recovered"}}': "",
        b"no json": "",
    }

    assert {answer: write_error_in(answer) for answer in answers} == answers
    assert await obstacle_in(tmp_path) == ""
    assert await obstacle_in(tmp_path / "gone") == "No such file or directory"
    assert os.listdir(tmp_path) == []
