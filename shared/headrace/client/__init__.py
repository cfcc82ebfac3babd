"""The Python client: start operations, watch them, read their logs, manage pools.

    async with headrace.connect() as client:
        operation = await client.run(["python", "work.py"], pool="research", jobs=50, memory="512M")
        view = await operation.wait()

Every answer is a Struct of `headrace.wire`. A refusal raises `Refused`, whose text says what would be accepted. A server that
cannot be reached raises `NotRunning`, a service that does not answer in time raises `Unanswered`. The client does not poll, except
that a wait looks again every few seconds in case a message was lost.
"""

from headrace.client.client import Client, Operation
from headrace.client.connecting import connect
from headrace.client.errors import ClientError, ForkedClient, NotAdmitted, NotRunning, NotTrusted, NotYours, Unanswered
from headrace.client.logs import LogLine
from headrace.client.operation_id import new_operation_id
from headrace.client.place import Place, find_place, login_user, state_folder
from headrace.client.places.endpoint import Endpoint
from headrace.client.pools import Pools
from headrace.client.run_options import JobOptions, RunOptions, operation_spec, task
from headrace.client.trees import Trees
from headrace.wire.refusals import Refused

__all__ = [
    "Client",
    "ClientError",
    "Endpoint",
    "ForkedClient",
    "JobOptions",
    "LogLine",
    "NotAdmitted",
    "NotRunning",
    "NotTrusted",
    "NotYours",
    "Operation",
    "Place",
    "Pools",
    "Refused",
    "RunOptions",
    "Trees",
    "Unanswered",
    "connect",
    "find_place",
    "login_user",
    "new_operation_id",
    "operation_spec",
    "state_folder",
    "task",
]
