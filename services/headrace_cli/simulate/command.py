"""The command `headrace simulate`: show what everybody would have got from a recorded workload of any scheduler.

It needs no running Headrace. The engines belong to the services, and services never import each other, so a separate process simulates.
"""

from __future__ import annotations

import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from cyclopts import Parameter

from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.installation.extras import require
from headrace.wire.simulation import Simulation, SimulationRefused, SimulationTask
from headrace_cli.exit_statuses import Exit
from headrace_cli.option_values import Number, Whole
from headrace_cli.session import Json, Switch
from headrace_cli.show.screen import Screen
from headrace_cli.simulator_process import answer_of

Several = Annotated[list[str] | None, Parameter(negative=())]
SeveralFiles = Annotated[list[Path] | None, Parameter(negative=())]
_STDIN: Final = Path("-")
#: Shortest time between failures, of a repair, and of a step.
_LEAST_MS: Final = 1_000
_LONGEST_STEP_MS: Final = 3_600_000


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """Options that say how the workload is read."""

    format: Literal["auto", "swf", "sacct", "yarn", "openb", "table"] = "auto"
    """Format of the workload. `auto` recognizes it by the name of the file and its first line."""
    nodes: Several = None
    """Nodes of the simulated cluster, such as 32:cpu=4,memory=16G, and gpu=2, user_slots=100, tags=ssd+fast. May be repeated."""
    nodes_file: Path | None = None
    """File of nodes in the form of Alibaba's openb trace."""
    pool_by: Literal["account", "queue", "group", "user"] | None = None
    """Property that names the pool of a job. Default: the first of account, queue, group and user that the workload has."""
    rules: Path | None = None
    """YAML file of rules that choose pools: a list of maps with pool, and user, group, account or queue. `*` stands for any letters."""
    strict: Switch = False
    """Refuse a workload with lines that cannot be read. Otherwise they are left out and counted."""


@Parameter(name="*")
@dataclass(frozen=True)
class Model:
    """Options that say what happens to jobs, nodes and users."""

    kept_fraction: Number = 0.0
    """Part of the work of a run that was interrupted by preemption or a failed node, from 0 to 1, that the next run need not repeat."""
    node_failures: str | None = None
    """Mean time between two failures of a node, such as 30d. All jobs on the node are lost. Default: nodes do not fail."""
    node_repair: str = "4h"
    """Time from the failure of a node to its return."""
    seed: Whole = 0
    """Number that chooses the times of failures. The same number gives the same times."""
    step: str = "1s"
    """Simulated time between two updates of shares on average. A longer one such as 30s makes a simulation of many jobs faster."""
    feedback: Switch = False
    """Let users wait for their results: a job that was submitted within 20 minutes after its user's last job ended follows the end of that
    job in the simulation, too.
    """


@Parameter(name="*")
@dataclass(frozen=True)
class Writing:
    """Options that say what is written."""

    jobs: Path | None = None
    """CSV file for a line for each job and configuration: pool, user, times of submission, start and end."""
    report: Path | None = None
    """HTML file for a page with tables and charts, which works without a network."""
    json: Json = False
    """Print the results as JSON (cores in `cpu`, bytes in `memory`)."""


def simulate(
    workload: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    pools: Path | None = None,
    compare: SeveralFiles = None,
    policy: str = "native",
    resource: Literal["cpu", "memory", "gpu", "network", "user_slots"] = "cpu",
    reading: Reading | None = None,
    model: Model | None = None,
    writing: Writing | None = None,
) -> int:
    """Simulate a recorded workload of any scheduler, and show what everybody would have got.

    The services' own engines decide in simulated time when the jobs start and which jobs are preempted. No job runs, and no running
    Headrace is needed.
    The workload is the output of Slurm's `sacct --parsable2`, the JSON of YARN's ResourceManager, a file in the Standard Workload Format,
    Alibaba's openb trace, or a table of comma-separated values. It may be compressed by gzip.
    For each configuration it shows the utilisation, the share error and the waits of the cluster, of each pool and of the ten users with
    the most usage.

    Examples of use:

        headrace simulate last-month.txt --nodes 32:cpu=16,memory=64G

        headrace simulate last-month.txt --nodes 32:cpu=16,memory=64G --pools pools.yaml --policy native,yarn,fifo --report report.html

        headrace simulate last-month.txt --nodes 32:cpu=16,memory=64G --pools pools.yaml --compare heavier.yaml

        headrace simulate pods.csv.gz --nodes-file nodes.csv.gz --resource gpu --jobs jobs.csv

    Parameters
    ----------
    workload
        File of jobs; - for standard input.
    pools
        Pools: a file of `headrace pool export`, or YARN's fair-scheduler.xml. Pools that only the workload names are added.
    compare
        Another file of pools to simulate as well. May be repeated.
    policy
        Policies for the pools of `--pools`, separated by commas: native (as the file says), yarn (YARN's preemption), fifo (one queue).
    resource
        The resource to count.
    """
    require("analysis", "`headrace simulate`")
    reading, model, writing = reading or Reading(), model or Model(), writing or Writing()
    screen = Screen(json=writing.json)
    setups = Setups(pools, compare or [], policy)
    task = _modelled(_task(setups, resource, reading, writing, screen), model)
    return _show(screen, _simulated(workload, task, screen), writing)


class Setups(NamedTuple):
    """The configurations that the user wants simulated."""

    pools: Path | None
    compared: list[Path]
    policies: str


def _task(setups: Setups, resource: str, reading: Reading, writing: Writing, screen: Screen) -> SimulationTask:
    """Return the task for the process that simulates, but for the file of the workload. Raises `BadInput`, `UnusableFile`."""
    from headrace_cli.simulate.options import parse_nodes, parse_policies, read_rules, setups_of

    # A simulation may take long, so the files are checked before it.
    for option, path in (("--report", writing.report), ("--jobs", writing.jobs)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise BadInput(option, str(path), "a file in a folder that exists")
    nodes = [parse_nodes(text) for text in reading.nodes or []]
    return SimulationTask(
        file="",
        setups=setups_of(setups.pools, setups.compared, parse_policies(setups.policies), nodes, screen.say),
        format=reading.format,
        nodes_file=str(reading.nodes_file or ""),
        nodes=nodes,
        rules=read_rules(str(reading.rules)) if reading.rules is not None else [],
        pool_by=reading.pool_by or "",
        resource=resource,
        strict=reading.strict,
        jobs_file=str(writing.jobs or ""),
    )


def _modelled(task: SimulationTask, model: Model) -> SimulationTask:
    """Return a task with this model of jobs, nodes and users. Raises `BadInput`."""
    if not 0 <= model.kept_fraction <= 1:
        raise BadInput("--kept-fraction", model.kept_fraction, "a number from 0 to 1")
    lengths_ms = {"--node-failures": 0}
    texts = {"--node-failures": model.node_failures, "--node-repair": model.node_repair, "--step": model.step}
    for option, text in texts.items():
        if text is not None:
            lengths_ms[option] = parse_duration_ms(text, place=option)
            if lengths_ms[option] < _LEAST_MS:
                raise BadInput(option, text, "a length of time of at least 1s")
    if lengths_ms["--step"] > _LONGEST_STEP_MS:
        raise BadInput("--step", model.step, "a length of time from 1s to 1h")
    return msgspec.structs.replace(
        task,
        kept_fraction=model.kept_fraction,
        failures_ms=lengths_ms["--node-failures"],
        repair_ms=lengths_ms["--node-repair"],
        seed=model.seed,
        step_ms=lengths_ms["--step"],
        feedback=model.feedback,
    )


def _simulated(workload: Path, task: SimulationTask, screen: Screen) -> Simulation | SimulationRefused | None:
    """Simulate in another process. Return None if the process failed; the end of its stderr has been printed."""
    answer: Simulation | SimulationRefused | None
    with _readable(workload) as path:
        task = msgspec.structs.replace(task, file=str(path))
        try:
            answer = answer_of(["simulate"], task, Simulation | SimulationRefused, screen, "simulated")
        finally:
            # The process was perhaps killed before it could remove the file.
            if task.jobs_file:
                Path(f"{task.jobs_file}.new").unlink(missing_ok=True)
    if isinstance(answer, SimulationRefused) and path != workload:
        name = "standard input" if workload == _STDIN else str(workload)
        return SimulationRefused(answer.why.replace(str(path), name))
    return answer


@contextmanager
def _readable(path: Path) -> Iterator[Path]:
    """Yield a file that another process can read. Standard input and pipes are copied to a temporary file."""
    if path != _STDIN and not _is_pipe(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="headrace-workload-") as copy:
        if path == _STDIN:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with path.open("rb") as file:
                shutil.copyfileobj(file, copy)
        copy.flush()
        yield Path(copy.name)


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _show(screen: Screen, answer: Simulation | SimulationRefused | None, writing: Writing) -> int:
    from headrace_cli.simulate.tables import simulation_notes, simulation_tables, simulation_title

    match answer:
        case None:
            return Exit.FAILED
        case SimulationRefused(why):
            screen.say(why, style="red")
            return Exit.USAGE
        case Simulation():
            if screen.json:
                screen.show_json(answer)
            else:
                screen.print(*simulation_title(answer), *simulation_tables(answer), "", *simulation_notes(answer))
            if writing.report is not None:
                from headrace_cli.simulate.report import write_report

                write_report(writing.report, answer)
                screen.say(f"wrote {writing.report}", whole=True)
            if writing.jobs is not None:
                screen.say(f"wrote {writing.jobs}", whole=True)
            return Exit.DONE
