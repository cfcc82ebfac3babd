"""`headrace.Executor` and the backend of joblib against a running Headrace, and the programs of the pages about Python."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import distributed
import joblib
import pytest

import headrace
import headrace.dask
import headrace.joblib
from headrace.bus import BusClosed
from headrace.errors import BadInput
from headrace.executor import Executor, JobFailed, RemoteTraceback
from headrace.wire.operations import OperationState
from tests.support.headrace_up import Up
from tests.support.python_pages import printed, programs

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as running:
        yield running


@pytest.fixture(scope="module")
def client(up: Up) -> Iterator[headrace.Client]:
    with headrace.Client(state=up.state) as opened:
        yield opened


@pytest.fixture
def executor(client: headrace.Client) -> Iterator[Executor]:
    with Executor(client, cpu=0.1) as opened:
        yield opened


def test_results_and_exceptions_come_back_beside_what_a_call_prints(executor: Executor) -> None:
    def noisy(size: int) -> bytes:
        print("headrace-outcome-bytes 7")
        print("noise" * 20_000, flush=True)
        return b"x" * size

    def failing() -> None:
        raise ValueError("no good")

    large, failed, named = executor.submit(noisy, 300_000), executor.submit(failing), executor.submit(int, "11", base=2)

    assert large.result() == b"x" * 300_000
    assert named.result() == 3
    error = failed.exception()
    assert isinstance(error, ValueError)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in failing" in str(error.__cause__)


def test_map_makes_several_calls_a_job_and_keeps_their_order(executor: Executor, client: headrace.Client) -> None:
    before = {view.operation for view in client.list()}

    assert list(executor.map(pow, range(100), [2] * 100, chunksize=20)) == [number**2 for number in range(100)]

    assert sum(view.spec.job_count for view in client.list() if view.operation not in before) == 5
    with pytest.raises(ValueError, match="chunksize must be at least 1, not 0"):
        executor.map(pow, [1], [2], chunksize=0)


def test_a_job_that_ends_without_an_outcome_says_how_it_ended(executor: Executor) -> None:
    def die() -> None:
        print("last words", file=sys.stderr, flush=True)
        os._exit(7)

    with pytest.raises(JobFailed, match=r"failed, exit code 7, on node alpha; the end of its stderr: 'last words'"):
        executor.submit(die).result()


def test_what_cannot_be_pickled_or_started_fails_its_own_future_only(client: headrace.Client) -> None:
    with Executor(client, cpu=0.1) as executor:
        unpicklable, fine = executor.submit(id, threading.Lock()), executor.submit(abs, -1)
        assert isinstance(unpicklable.exception(), TypeError)
        assert fine.result() == 1
    with Executor(client, cpu=0.1, pool="no such pool") as executor, pytest.raises(BadInput, match="pool: "):
        executor.submit(abs, -1).result()


def test_calls_that_were_not_sent_are_cancelled_and_no_more_are_taken(client: headrace.Client) -> None:
    executor = Executor(client, cpu=0.1)
    sent = executor.submit(abs, -1)
    assert sent.result() == 1
    waiting = [executor.submit(abs, -2) for _ in range(3)]
    executor.shutdown(cancel_futures=True)

    assert all(future.cancelled() or future.result() == 2 for future in waiting)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(abs, -1)


def test_ctrl_c_in_the_block_aborts_what_runs(client: headrace.Client) -> None:
    def endless() -> None:
        time.sleep(600)

    ctrl_c = threading.Timer(1.0, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
    executor = Executor(client, cpu=0.1, title="endless")
    future = executor.submit(endless)
    ctrl_c.start()
    with pytest.raises(KeyboardInterrupt), executor:
        future.result()

    assert isinstance(future.exception(), JobFailed)
    [view] = [view for view in client.list() if view.spec.title == "endless"]
    assert view.state is OperationState.ABORTED


def test_an_exception_right_after_a_call_was_submitted_leaves_nothing_running(client: headrace.Client) -> None:
    def endless() -> None:
        time.sleep(600)

    executor = Executor(client, cpu=0.1, title="just begun")
    future = executor.submit(endless)
    time.sleep(0.01)  # the thread has taken the call, and waits for others to send with it
    with pytest.raises(ZeroDivisionError), executor:
        raise ZeroDivisionError

    assert future.done()
    assert all(view.state is OperationState.ABORTED for view in client.list() if view.spec.title == "just begun")


def test_with_more_tries_a_call_that_fails_first_has_the_result_of_its_last_try(
    client: headrace.Client, tmp_path: Path
) -> None:
    marker = str(tmp_path / "tried")

    def second_time() -> str:
        if os.path.exists(marker):
            return "done"
        with open(marker, "w"):
            raise ValueError("not yet")

    with Executor(client, cpu=0.1, tries=2) as executor:
        assert executor.submit(second_time).result() == "done"


def test_a_program_that_ends_without_a_shutdown_waits_for_its_calls(up: Up) -> None:
    program = (
        "import headrace\n"
        "future = headrace.Executor(cpu=0.1).submit(abs, -5)\n"
        "future.add_done_callback(lambda done: print(done.result()))\n"
    )
    environment = os.environ | {"HEADRACE_STATE": str(up.state)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


@pytest.mark.parametrize(
    "program",
    [
        "client = headrace.Client()",
        "client = headrace.Client(); client.get('')",
        "executor = headrace.Executor(); print(executor.submit(pow, 2, 5).result())",
        "executor = headrace.Executor(headrace.Client()); executor.submit(print).result(); raise ValueError",
    ],
)
def test_a_program_that_closes_nothing_ends(up: Up, program: str) -> None:
    subprocess.run(
        [sys.executable, "-c", f"import headrace\n{program}"],
        env=os.environ | {"HEADRACE_STATE": str(up.state)},
        capture_output=True,
        timeout=20,
        check=False,
    )


def test_a_forked_process_is_refused_the_client_of_its_parent_and_ends(up: Up) -> None:
    """It has no thread for the event loop of the client, so a call, or the end of the connection, would wait for ever."""
    program = (
        "import os, sys, headrace\n"
        "client = headrace.Client()\n"
        "executor = headrace.Executor(client)\n"
        "executor.submit(abs, -5).result()\n"
        "if child := os.fork():\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(client.list()) > 0)\n"
        "    sys.exit()\n"
        "for call in (client.list, lambda: executor.submit(abs, -6), lambda: list(client.logs('1-2'))):\n"
        "    try:\n"
        "        call()\n"
        "    except headrace.client.ForkedClient as error:\n"
        "        print(type(error).__name__, flush=True)\n"
        "with headrace.Client() as own:\n"
        "    own.list()\n"
        "sys.exit(3)\n"
    )
    environment = os.environ | {"HEADRACE_STATE": str(up.state)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 3 * "ForkedClient\n" + "3 True\n"


def test_who_waits_while_the_client_is_closed_is_told_so(up: Up) -> None:
    with headrace.Client(state=up.state) as client, futures.ThreadPoolExecutor() as threads:
        executor = Executor(client, cpu=0.1)
        running = client.run(["sleep", "60"], cpu=0.1)
        called = executor.submit(time.sleep, 60)
        waiting = threads.submit(running.wait)
        while len(client.list(live=True)) < 2:
            time.sleep(0.05)
        client.close()
        errors = [waiting.exception(20), called.exception(20)]
        executor.shutdown()
    with headrace.Client(state=up.state) as client:
        for view in client.list(live=True):
            client.abort(view.operation)

    assert [type(error) for error in errors] == [BusClosed, BusClosed]
    assert "the client was closed" in str(errors[0])


def test_as_completed_and_wait_see_the_futures(executor: Executor) -> None:
    calls = {executor.submit(abs, -number): number for number in range(5)}

    assert {future.result() for future in futures.as_completed(calls)} == set(range(5))
    assert futures.wait(calls).not_done == set()


def test_the_programs_of_the_page_of_the_client_do_what_it_says(up: Up, tmp_path: Path) -> None:
    counted, greeted, refused = (printed(up, program, tmp_path) for program in programs("python.md"))

    assert counted == ["completed 3"]
    assert sorted(greeted) == ["0 hello Ada", "1 hello Grace"]
    assert refused == ["memory: '5' cannot be used; expected a number with a unit, such as 512M, 2GiB or 1000B"]


def test_the_program_of_the_page_runs_the_calls_of_joblib_as_jobs(
    up: Up, client: headrace.Client, tmp_path: Path
) -> None:
    [said] = printed(up, next(text for text in programs("python-functions.md") if "joblib" in text), tmp_path)

    assert said == str([float(number) for number in range(10)])
    assert any(view.spec.title == "joblib" and view.spec.resources.cpu == 50 for view in client.list())


def test_an_exception_of_a_call_of_joblib_aborts_the_other_jobs(client: headrace.Client) -> None:
    def fail_or_sleep(number: int) -> None:
        if number == 1:
            raise ValueError("no good")
        time.sleep(600)

    headrace.joblib.register()
    with (
        joblib.parallel_config(backend="headrace", client=client, cpu=0.1, title="fails soon"),
        pytest.raises(ValueError, match="no good"),
    ):
        joblib.Parallel(n_jobs=2)(joblib.delayed(fail_or_sleep)(number) for number in range(4))

    states = [client.wait(view.operation).state for view in client.list() if view.spec.title == "fails soon"]
    assert OperationState.ABORTED in states
    assert set(states) <= {OperationState.ABORTED, OperationState.FAILED}


@pytest.mark.parametrize(("n_jobs", "jobs"), [(-1, 4), (-3, 2), (7, 7), (None, 1)])
def test_joblib_sends_as_many_jobs_as_the_nodes_can_run(client: headrace.Client, n_jobs: int | None, jobs: int) -> None:
    assert headrace.joblib.HeadraceBackend(client=client, memory="1G").effective_n_jobs(n_jobs) == jobs


def test_the_workers_of_the_dask_cluster_of_the_page_are_jobs(up: Up, client: headrace.Client, tmp_path: Path) -> None:
    program = next(text for text in programs("python-functions.md") if "dask" in text)
    said = printed(up, program, tmp_path, quiet=False)  # Dask tells of each connection that closes

    assert said == ["285", "285"]
    views = [client.wait(view.operation) for view in client.list() if view.spec.title == "Dask worker"]
    assert len(views) >= 2
    assert {(view.state, view.reason) for view in views} == {
        (OperationState.ABORTED, f"aborted by {client.user}: the Dask cluster closed the worker")
    }
    assert {view.spec.resources.memory for view in views} == {512 * 2**20}


def test_other_accounts_get_no_answer_from_a_dask_cluster(client: headrace.Client) -> None:
    another_key = distributed.Security.temporary().get_connection_args("client")
    with headrace.dask.HeadraceCluster(client=client, cpu=0.5, memory="512M", n_workers=1) as cluster:
        with distributed.Client(cluster) as owner:
            owner.wait_for_workers(1, timeout=60)
        (worker,) = cluster.scheduler.workers
        for address in (cluster.scheduler_address, worker):
            assert address.startswith("tls://")
            with pytest.raises(OSError, match=r"\w"):
                asyncio.run(distributed.comm.connect(address.replace("tls", "tcp"), timeout=1))
            with pytest.raises(OSError, match=r"\w"):
                asyncio.run(distributed.comm.connect(address, timeout=1, **another_key))
        dashboard = cluster.scheduler.http_server._sockets.values()
        assert {each.getsockname()[0] for each in dashboard} == {"127.0.0.1"}


def test_a_dask_cluster_with_options_that_cannot_be_used_does_not_start(client: headrace.Client) -> None:
    with pytest.raises(BadInput, match="a number with a unit"):
        headrace.dask.HeadraceCluster(client=client, memory="5")
