"""The readers of openb, YARN and tables, and how the format of a file is recognized."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from headrace.errors import BadInput
from headrace.resources import Resources
from headrace_simulator.workloads.formats import FORMATS, read_workload
from headrace_simulator.workloads.openb import read_openb_nodes, read_openb_pods
from headrace_simulator.workloads.table import COLUMNS, read_table
from headrace_simulator.workloads.workload import Workload, WorkloadJob, WorkloadNode
from headrace_simulator.workloads.yarn import read_yarn

MIB, GIB = 2**20, 2**30
#: 2026-11-02T10:00:00 in UTC.
TEN_MS = 1_793_613_600_000


def harmless(workload: Workload) -> bool:
    return all(why.isprintable() and len(why) < 250 for _, why in workload.damaged)


# openb

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
POD = "pod-1,6005,12288,1,460,,LS,Succeeded,100,1000,130"


def pod_line(**other: str) -> str:
    return ",".join((dict(zip(PODS.split(","), POD.split(","), strict=True)) | other).values())


def test_openb_reads_every_field() -> None:
    workload = read_openb_pods([PODS + "\r\n", POD + "\r\n"])

    assert workload.format == "openb"
    assert workload.jobs == [
        WorkloadJob(
            name="pod-1",
            submitted_ms=100_000,
            runs_ms=870_000,
            count=1,
            size=Resources(user_slots=1, cpu=601, gpu=1, memory=12 * GIB),
            queue="ls",
            waited_ms=30_000,
        )
    ]
    assert workload.damaged == []
    assert workload.notes == ["1 tasks request a part of a GPU and get a whole GPU"]


def test_openb_notes_parts_and_kinds_of_gpus() -> None:
    whole = pod_line(gpu_milli="1000", num_gpu="8", gpu_spec="V100M16|V100M32", pod_phase="Failed")
    workload = read_openb_pods([PODS, POD, POD, whole, pod_line(num_gpu="0", gpu_milli="500"), pod_line(gpu_milli="0")])

    assert [job.size.gpu for job in workload.jobs] == [1, 1, 8, 0, 1]
    assert [job.failed for job in workload.jobs] == [False, False, True, False, False]
    assert workload.notes == [
        "2 tasks request a part of a GPU and get a whole GPU",
        "1 tasks request a kind of GPU (gpu_spec), which is ignored",
    ]


def test_openb_leaves_out_tasks_without_a_run() -> None:
    workload = read_openb_pods(
        [PODS, pod_line(scheduled_time=""), pod_line(deletion_time=""), pod_line(creation_time=""), POD]
    )

    assert len(workload.jobs) == 1
    assert workload.left_out == Counter({"never scheduled": 1, "never deleted": 1, "without a submit time": 1})
    assert workload.damaged == []


def test_openb_without_scheduled_times_runs_from_the_creation() -> None:
    (job,) = read_openb_pods([PODS.removesuffix(",scheduled_time"), POD.removesuffix(",130")]).jobs

    assert (job.runs_ms, job.waited_ms) == (900_000, -1)


@pytest.mark.parametrize(
    "other",
    [
        {"name": ""},
        {"name": "pod\ufffd"},
        {"name": '"pod'},
        {"cpu_milli": "-1"},
        {"cpu_milli": "9" * 19},
        {"memory_mib": "9" * 15},
        {"memory_mib": "nan"},
        {"num_gpu": "1.5"},
        {"gpu_milli": "x"},
        {"creation_time": "inf"},
        {"deletion_time": "129"},
        {"deletion_time": "1e300"},
        {"scheduled_time": "99"},
        {"qos": "LS,BE"},
    ],
    ids=repr,
)
def test_openb_counts_damaged_lines(other: dict[str, str]) -> None:
    workload = read_openb_pods([PODS, POD, pod_line(**other), POD])

    assert len(workload.jobs) == 2
    assert [line for line, _ in workload.damaged] == [3]
    assert harmless(workload)


def test_openb_names_missing_columns() -> None:
    with pytest.raises(BadInput, match=r"'name'.*needed are name, cpu_milli, memory_mib, num_gpu, creation_time"):
        read_openb_pods([PODS.replace("num_gpu", "gpus"), POD])
    with pytest.raises(BadInput, match="needed are cpu_milli, memory_mib, gpu"):
        read_openb_nodes(["sn,cpu_milli", "a,1"])
    with pytest.raises(BadInput, match="no lines"):
        read_openb_pods([])


def test_openb_groups_equal_nodes() -> None:
    header = "sn,cpu_milli,memory_mib,gpu,model"
    lines = ["a,32000,1024,0,", "b,96009,2048,8,G2", "c,32000,1024,0,", "d,96009,2048,8,T4", "e,96009,2048,8,a b"]

    big = Resources(user_slots=1_000, cpu=9600, gpu=8, memory=2 * GIB)
    assert read_openb_nodes([header, *lines]) == [
        WorkloadNode(2, Resources(user_slots=1_000, cpu=3200, memory=GIB)),
        WorkloadNode(1, big, ["gpu:g2"]),
        WorkloadNode(1, big, ["gpu:t4"]),
        WorkloadNode(1, big),
    ]
    assert read_openb_nodes([header, f"a,1000,1,1,{'x' * 100}"])[0].tags == []
    with pytest.raises(BadInput, match=r"line 3.*memory_mib is 'x'"):
        read_openb_nodes([header, lines[0], "b,1,x,0,"])


# YARN

APPLICATION: dict[str, Any] = {
    "id": "application_1_0001",
    "user": "anna",
    "name": "word count",
    "queue": "root.research",
    "state": "FINISHED",
    "finalStatus": "SUCCEEDED",
    "startedTime": TEN_MS,
    "launchTime": TEN_MS + 5_000,
    "finishedTime": TEN_MS + 105_000,
    "elapsedTime": 105_000,
    "memorySeconds": 716_800,
    "vcoreSeconds": 350,
    "allocatedMB": -1,
    "allocatedVCores": -1,
}


def apps(*items: Any) -> list[str]:
    return [json.dumps({"apps": {"app": list(items)}})]


def test_yarn_reads_every_field_of_an_application() -> None:
    workload = read_yarn(apps(APPLICATION))

    assert workload.format == "yarn"
    assert workload.jobs == [
        WorkloadJob(
            name="application_1_0001",
            submitted_ms=TEN_MS,
            runs_ms=100_000,
            count=4,  # 3.5 cores on average
            size=Resources(user_slots=1, cpu=100, memory=2 * GIB),
            user="anna",
            queue="root.research",
            waited_ms=5_000,
        )
    ]
    assert workload.damaged == []
    assert len(workload.notes) == 1
    assert "vcoreSeconds" in workload.notes[0]


def test_yarn_without_a_launch_time_runs_for_the_elapsed_time() -> None:
    old = {name: value for name, value in APPLICATION.items() if name not in ("launchTime", "elapsedTime")}
    (job,) = read_yarn(apps(old | {"finalStatus": "FAILED", "vcoreSeconds": 1, "memorySeconds": 1})).jobs

    assert (job.runs_ms, job.waited_ms, job.count, job.size.memory, job.failed) == (105_000, -1, 1, MIB, True)


def test_yarn_leaves_out_applications_without_a_run() -> None:
    workload = read_yarn(
        apps(
            APPLICATION | {"state": "ACCEPTED"},
            APPLICATION | {"state": "KILLED", "vcoreSeconds": 0},
            APPLICATION | {"elapsedTime": 0, "launchTime": 0},
            APPLICATION | {"vcoreSeconds": -1},
            APPLICATION | {"startedTime": 0},
            APPLICATION | {"state": "RUNNING", "finishedTime": 0},
        )
    )

    assert [job.runs_ms for job in workload.jobs] == [100_000]
    assert workload.left_out == Counter(
        {"not started": 1, "without a run time or without vcoreSeconds": 3, "without a submit time": 1}
    )
    assert "1 applications were still running: their run time is the time elapsed so far" in workload.notes


@pytest.mark.parametrize(
    "lines", [['{"apps": null}'], ['{"apps": {}}'], ['{"apps":', '{"app": []}}'], ['{"apps": {"app": null}}']]
)
def test_yarn_accepts_that_there_are_no_applications(lines: list[str]) -> None:
    assert read_yarn(lines).jobs == []


def test_yarn_accepts_one_application_and_an_array() -> None:
    assert len(read_yarn([json.dumps({"app": APPLICATION})]).jobs) == 1
    assert len(read_yarn([json.dumps([APPLICATION, APPLICATION])]).jobs) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"id": ""},
        {"id": "a\ufffd"},
        {"id": "a\ud800\ufffd"},
        {"startedTime": None},
        {"startedTime": "x"},
        {"startedTime": -5},
        {"startedTime": True},
        {"elapsedTime": 1e300},
        {"elapsedTime": float("nan")},
        {"elapsedTime": [1]},
        {"vcoreSeconds": 10**400},
        {"vcoreSeconds": 2**59, "elapsedTime": 6_000},
        {"memorySeconds": -7},
        {"memorySeconds": 2**59},
    ],
    ids=str,
)
def test_yarn_counts_damaged_applications(other: dict[str, Any]) -> None:
    workload = read_yarn(apps(APPLICATION, APPLICATION | other, "text", APPLICATION))

    assert len(workload.jobs) == 2
    assert [why.partition(":")[0] for _, why in workload.damaged] == ["job 2", "job 3"]
    assert harmless(workload)


def task(**other: Any) -> dict[str, Any]:
    return {
        "container.host": "/rack/node1",
        "container.start.ms": "1000",
        "container.end.ms": "31000",
        "container.priority": 20,
        "container.type": "map",
    } | {name.replace("_", "."): value for name, value in other.items()}


def sls(*tasks: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {
        "am.type": "mapreduce",
        "job.start.ms": 2_000,
        "job.end.ms": 95_375,
        "job.queue.name": "sls_queue_1",
        "job.id": "job_1",
        "job.user": "anna",
        "job.tasks": list(tasks),
    } | {name.replace("_", "."): value for name, value in other.items()}


def test_sls_groups_equal_containers_of_a_job() -> None:
    job = sls(
        task(),
        task(),
        task(container_memory=2048, container_vcores="2"),
        task(duration_ms=30_000, count=3),
        task(container_end_ms=61_000),
    )
    workload = read_yarn(json.dumps(job, indent=1).splitlines())

    common: dict[str, Any] = {"submitted_ms": 2_000, "user": "anna", "queue": "sls_queue_1"}
    small = Resources(user_slots=1, cpu=100, memory=GIB)
    assert workload.jobs == [
        WorkloadJob(name="job_1", runs_ms=30_000, count=5, size=small, **common),
        WorkloadJob(
            name="job_1/2", runs_ms=30_000, count=1, size=Resources(user_slots=1, cpu=200, memory=2 * GIB), **common
        ),
        WorkloadJob(name="job_1/3", runs_ms=60_000, count=1, size=small, **common),
    ]
    assert workload.format == "yarn"
    assert len(workload.notes) == 1
    assert "containers" in workload.notes[0]


@pytest.mark.parametrize("separator", ["\n", " ", ",\n", ""])
def test_sls_traces_are_sequences_or_arrays(separator: str) -> None:
    texts = [json.dumps(sls(task(), job_id=name)) for name in ("a", "b", 3)]

    for text in (separator.join(texts), f"[{','.join(texts)}]"):
        assert [job.name for job in read_yarn(text.splitlines(keepends=True)).jobs] == ["a", "b", "3"]


def test_sls_jobs_without_a_name_and_several_times() -> None:
    job = sls(task(), job_count=4)
    del job["job.id"]
    workload = read_yarn([json.dumps(sls()), json.dumps(job)])

    assert [(each.name, each.count) for each in workload.jobs] == [("job2", 4)]
    assert workload.left_out == Counter({"without containers": 1})


@pytest.mark.parametrize(
    "job",
    [
        sls(task(container_end_ms=999)),
        sls(task(container_end_ms="1e300")),
        sls(task(container_end_ms=None)),
        sls(task(count=1_000_001)),
        sls(task(count=0)),
        sls(task(count=1.5)),
        sls(task(container_memory=2**59)),
        sls(task(container_vcores=-2)),
        sls(task(), job_id=""),
        sls(task(), job_start_ms="\ufffd"),
        sls(task(), job_tasks={"a": 1}),
        sls(task(), job_tasks=[1]),
    ],
    ids=str,
)
def test_sls_counts_damaged_jobs(job: dict[str, Any]) -> None:
    workload = read_yarn([json.dumps(sls(task())), json.dumps(job), json.dumps(sls(task()))])

    assert len(workload.jobs) == 2
    assert [line for line, _ in workload.damaged] == [2]
    assert harmless(workload)


def test_sls_goes_on_after_a_line_that_is_no_json() -> None:
    good = json.dumps(sls(task()))
    workload = read_yarn([good, good[:-5] + "\x1b", good, '{"a": ' + "9" * 5000 + "}", good, "[" * 100_000, good])

    assert len(workload.jobs) == 4
    assert [line for line, _ in workload.damaged] == [2, 4, 6]
    assert harmless(workload)


@pytest.mark.parametrize("text", ["", "hello", "[]", "{}", "[1, 2]", '{"jobs": []}', "[" * 100_000, '{"apps"'])
def test_yarn_says_what_is_accepted(text: str) -> None:
    with pytest.raises(BadInput, match=r"accepted are the applications of a ResourceManager.*Scheduler Load Simulator"):
        read_yarn([text])


# Tables


def test_table_reads_every_field() -> None:
    workload = read_table(
        [
            "\ufeffSubmit,run,name,user,group,account,queue,count,cpu,memory,gpu,together,limit,failed,wait\n",
            '10.5,2h,"train, again",anna,staff,physics,batch,8,0.5,512M,2,yes,3h,true,7\n',
        ]
    )

    assert workload.format == "table"
    assert workload.jobs == [
        WorkloadJob(
            name="train, again",
            submitted_ms=10_500,
            runs_ms=7_200_000,
            count=8,
            size=Resources(user_slots=1, cpu=50, gpu=2, memory=512 * MIB),
            together=True,
            user="anna",
            group="staff",
            account="physics",
            queue="batch",
            limit_ms=10_800_000,
            waited_ms=7_000,
            failed=True,
        )
    ]
    assert workload.notes == []
    assert workload.damaged == []


def test_table_has_defaults() -> None:
    plain = WorkloadJob(name="2", submitted_ms=1_000, runs_ms=1_500, count=1, size=Resources(user_slots=1, cpu=100))
    empty = ",".join(COLUMNS)

    assert read_table(["run,submit", "1.5,1"]).jobs == [plain]
    assert read_table([empty, "1,1.5" + "," * (len(COLUMNS) - 2)]).jobs == [plain]


def test_table_words_for_yes_and_no() -> None:
    words = ("yes", "TRUE", "1", "no", "False", "0", "")
    jobs = read_table(["submit,run,together", *(f"1,1,{word}" for word in words)]).jobs

    assert [job.together for job in jobs] == [True, True, True, False, False, False, False]


def test_table_reads_dates() -> None:
    lines = ["submit,run", "2026-11-02T10:00:00,1", "2026-11-02T11:00:00+01:00,1", "5,1", "2026-11-02,1"]
    workload = read_table(lines)

    assert [job.submitted_ms for job in workload.jobs] == [TEN_MS, TEN_MS, TEN_MS - 36_000_000]
    assert workload.damaged == [(4, "submit is '5'; expected a time as in the lines before")]
    assert workload.notes == ["submit times without a zone are read as UTC"]


def test_table_suggests_the_column_that_was_meant() -> None:
    with pytest.raises(BadInput, match=r"column 3: 'memroy' cannot be used; did you mean memory\?"):
        read_table(["submit,run,memroy", "1,1,1"])
    with pytest.raises(BadInput, match=r"column 3: 'run'.*each column once"):
        read_table(["submit,run,run", "1,1,1"])
    with pytest.raises(BadInput, match=r"columns 'submit', 'cpu'; needed are submit and run"):
        read_table(["submit,cpu", "1,1"])
    with pytest.raises(BadInput, match=r"columns 'a', 'b'; needed are submit and run"):
        read_table(["a,b", "1,1"])
    with pytest.raises(BadInput, match="header cannot be read"):
        read_table(['"submit,run'])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("submit", ""),
        ("submit", "-5"),
        ("submit", "nan"),
        ("submit", "1e300"),
        ("submit", "1\ufffd"),
        ("submit", "2026-19-02"),
        ("run", ""),
        ("run", "2x"),
        ("run", "-1"),
        ("run", "1e12"),
        ("run", "99999d"),
        ("run", "1.2.3"),
        ("limit", "soon"),
        ("wait", "-2"),
        ("count", "0"),
        ("count", "1000001"),
        ("count", "2.5"),
        ("cpu", "inf"),
        ("cpu", "0.001"),
        ("memory", "512"),
        ("memory", "1e3M"),
        ("memory", "9999999999T"),
        ("gpu", "0.5"),
        ("together", "perhaps"),
        ("failed", "\x1b[31m" * 100),
        ("name", "a,b"),
        ("name", '"a'),
    ],
)
def test_table_counts_damaged_lines(column: str, value: str) -> None:
    header = ["submit", "run", *([column] if column not in ("submit", "run") else [])]
    good = dict.fromkeys(header, "1") | ({"memory": "1G"} if column == "memory" else {})
    lines = [",".join(row.values()) for row in (good, good | {column: value}, good)]
    workload = read_table([",".join(header), *lines])

    assert len(workload.jobs) == 2
    assert [line for line, _ in workload.damaged] == [3]
    assert harmless(workload)


# Formats

SWF_LINE = "7 100 20 60 4 -1 -1 8 3600 1024 1 3 2 -1 5 -1 -1 -1"
FIRST_LINES = {
    "swf": [SWF_LINE],
    "sacct": ["JobID|Submit|Elapsed|NCPUS", "1|2026-11-02T10:00:00|01:00:00|1"],
    "yarn": apps(APPLICATION),
    "openb": [PODS, POD],
    "table": ["run, submit", "1,1"],
}


def test_each_format_has_an_example() -> None:
    assert tuple(FIRST_LINES) == FORMATS


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["-", "trace.txt", "trace.csv.gz"])
def test_the_format_is_recognized_by_the_first_line(format: str, name: str) -> None:
    for lines in (FIRST_LINES[format], ["\ufeff\n", " \n", *FIRST_LINES[format]]):
        workload = read_workload(name, iter(lines))

        assert workload.format == format
        assert len(workload.jobs) == 1
    assert read_workload("trace.swf", FIRST_LINES[format], format).format == format


def test_the_format_is_recognized_by_a_comment_and_by_the_name() -> None:
    assert read_workload("-", ["; Version: 2.2", SWF_LINE]).format == "swf"
    assert read_workload("a/Trace.SWF.gz", ["1 2", SWF_LINE]).damaged_count == 1
    assert read_workload("jobs.json", ["x", *apps(APPLICATION)]).damaged_count == 1


@pytest.mark.parametrize("first", ["hello", "a,b,c", "1 2 3", "x " * 18, "\x1b[31m" + "y" * 1000])
def test_a_file_of_no_known_format_is_refused(first: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_workload("trace.dat", ["", first, "second"])

    text = str(caught.value)
    assert text.startswith("trace.dat: the format cannot be recognized: the first line is ")
    assert repr(first[:60].strip() if len(first) < 60 else first[:60])[:40] in text
    assert text.isprintable()
    assert len(text) < 250
    assert text.endswith("one of swf, sacct, yarn, openb, table")


@pytest.mark.parametrize("lines", [[], ["\n"] * 5_000])
def test_a_file_without_lines_is_refused(lines: list[str]) -> None:
    with pytest.raises(BadInput, match=r"trace\.dat: the format cannot be recognized: the file has no lines"):
        read_workload("trace.dat", lines)


def test_errors_name_the_file_and_unknown_formats_are_refused() -> None:
    with pytest.raises(BadInput, match=r"^slurm\.txt \(sacct\): the header has the columns 'a', 'b'"):
        read_workload("slurm.txt", ["a|b"])
    with pytest.raises(BadInput, match=r"^format: 'sact' cannot be used; did you mean sacct\?"):
        read_workload("slurm.txt", ["a|b"], "sact")
