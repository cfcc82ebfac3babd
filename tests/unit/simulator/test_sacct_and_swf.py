"""The readers of Slurm's accounting records and of the Standard Workload Format."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.errors import BadInput
from headrace.resources import Resources
from headrace_simulator.workloads.sacct import read_sacct
from headrace_simulator.workloads.swf import read_swf
from headrace_simulator.workloads.workload import MOST_DAMAGED, WorkloadJob, WorkloadNode

GIB = 2**30
#: 2026-11-02T10:00:00 in UTC.
TEN_MS = 1_793_613_600_000

HEADER = "JobID|User|Group|Account|Partition|Submit|Start|End|ElapsedRaw|State|AllocCPUS|AllocNodes|ReqMem|AllocTRES|TimelimitRaw"
LINE = (
    "123|anna|staff|physics|batch|2026-11-02T10:00:00|2026-11-02T10:01:00|2026-11-02T11:01:00|3600|COMPLETED|10|4|16G|"
    "billing=10,cpu=10,gres/gpu:a100=6,gres/gpu=6,mem=16G,node=4|120"
)


def sacct_job(header: str, *values: str) -> WorkloadJob:
    """The only job of a line with the needed columns and those of the header."""
    names = f"JobID|Submit|ElapsedRaw|{header}"
    workload = read_sacct([names, "|".join(("1", "2026-11-02T10:00:00", "60", *values))])
    assert workload.damaged == []
    assert workload.left_out == Counter()
    (job,) = workload.jobs
    return job


def sacct_line(**other: str) -> str:
    values = dict(zip(HEADER.split("|"), LINE.split("|"), strict=True)) | other
    return "|".join(values.values())


def test_sacct_reads_every_field() -> None:
    workload = read_sacct([HEADER + "\n", LINE + "\n"])

    assert workload.format == "sacct"
    assert workload.jobs == [
        WorkloadJob(
            name="123",
            submitted_ms=TEN_MS,
            runs_ms=3_600_000,
            count=4,
            size=Resources(user_slots=1, cpu=300, gpu=2, memory=4 * GIB),
            together=True,
            user="anna",
            group="staff",
            account="physics",
            queue="batch",
            limit_ms=7_200_000,
            waited_ms=60_000,
            failed=False,
        )
    ]
    assert workload.nodes == []
    assert workload.damaged_count == 0
    assert workload.notes == [
        "the times have no zone and are read as UTC",
        "a job on several nodes is one job for each node, with equal parts of its resources, rounded up",
    ]


def test_sacct_finds_columns_in_any_order_and_case_and_with_a_bar_at_the_end() -> None:
    workload = read_sacct(
        [
            "\ufeffncpus|ELAPSED|submit|jobidraw|QOS|",
            "2|1-02:03:04.500|1793613600|7|high|",
            "",
            "ncpus|ELAPSED|submit|jobidraw|QOS|",
        ]
    )

    (job,) = workload.jobs
    assert (job.name, job.queue, job.submitted_ms, job.count, job.together) == ("7", "high", TEN_MS, 1, False)
    assert job.runs_ms == 93_784_500
    assert job.size == Resources(user_slots=1, cpu=200)
    assert (job.user, job.limit_ms, job.waited_ms) == ("", 0, -1)
    assert workload.damaged == []
    assert workload.notes == []  # seconds since 1970 need no zone


@pytest.mark.parametrize("missing", ["JobID", "Submit", "ElapsedRaw", "AllocCPUS"])
def test_sacct_says_which_columns_are_there_and_which_are_needed(missing: str) -> None:
    header = HEADER.replace(missing, "Other\x1b")

    with pytest.raises(BadInput) as caught:
        read_sacct([header, LINE])

    assert "'Other\\x1b'" in str(caught.value)
    assert "'Partition'" in str(caught.value)
    assert "JobID or JobIDRaw, Submit, one of ElapsedRaw and Elapsed, one of AllocCPUS, NCPUS and ReqCPUS" in str(
        caught.value
    )


@pytest.mark.parametrize("lines", [[], ["", "  \n"]])
def test_sacct_refuses_a_file_without_lines(lines: list[str]) -> None:
    with pytest.raises(BadInput, match="no lines"):
        read_sacct(lines)


def test_sacct_passes_over_steps_and_leaves_out_what_never_ran() -> None:
    workload = read_sacct(
        [
            HEADER,
            *(sacct_line(JobID=name) for name in ("123.batch", "123.0", "123_4.extern", ".extern")),
            *(sacct_line(JobID=name) for name in ("123_4", "124+0")),
            sacct_line(JobID="123_[5-9%2]", State="PENDING"),
            sacct_line(State="PENDING", Start="Unknown", ElapsedRaw="0"),
            sacct_line(State="CANCELLED by 1000", Start="None", ElapsedRaw="0"),
            sacct_line(State="BOOT_FAIL", Start="Unknown", ElapsedRaw="0"),
            sacct_line(Submit="Unknown"),
            sacct_line(ElapsedRaw=""),
            sacct_line(AllocCPUS="0"),
        ]
    )

    assert [job.name for job in workload.jobs] == ["123_4", "124+0"]
    assert workload.left_out == Counter(
        {
            "pending tasks of an array": 1,
            "pending": 1,
            "cancelled before the start": 1,
            "never started": 1,
            "without a run time or a submit time": 2,
            "without a number of processors": 1,
        }
    )
    assert workload.damaged == []


def test_sacct_takes_the_time_so_far_of_running_jobs_and_says_so() -> None:
    workload = read_sacct([HEADER, sacct_line(State="RUNNING", ElapsedRaw="50"), sacct_line(State="RUNNING"), LINE])

    assert [job.runs_ms for job in workload.jobs] == [50_000, 3_600_000, 3_600_000]
    assert "2 jobs were still running: their run time is the time elapsed so far" in workload.notes


@pytest.mark.parametrize(
    ("state", "failed"),
    [
        ("FAILED", True),
        ("OUT_OF_MEMORY", True),
        ("NODE_FAIL", False),
        ("TIMEOUT", False),
        ("COMPLETED", False),
        ("CANCELLED by 7", False),
    ],
)
def test_sacct_failed_jobs(state: str, failed: bool) -> None:
    assert sacct_job("AllocCPUS|State", "1", state).failed is failed


def test_sacct_takes_the_first_number_of_processors_and_nodes_above_zero() -> None:
    assert sacct_job("AllocCPUS|NCPUS|ReqCPUS", "0", "", "8").size.cpu == 800
    assert sacct_job("AllocCPUS|NCPUS|ReqCPUS", "4", "6", "8").size.cpu == 400
    assert sacct_job("AllocCPUS|AllocNodes|NNodes|ReqNodes", "8", "0", "2", "4").count == 2
    assert sacct_job("AllocCPUS|AllocTRES", "8", "node=8").count == 8
    assert sacct_job("AllocCPUS|AllocTRES|ReqTRES", "8", "", "node=4").count == 4
    assert sacct_job("AllocCPUS|AllocTRES|ReqTRES", "8", "node=2", "node=4").count == 2


@pytest.mark.parametrize(
    ("hosts", "count"),
    [
        ("node7", 1),
        ("node[01-03,7]", 4),
        ("alpha,node[08-10]-ib,beta", 5),
        ("rack[1-2]n[1-3]", 6),
        ("None assigned", 1),
        ("node[3-1]", 1),
        ("node[1-", 1),
    ],
)
def test_sacct_counts_hosts_if_there_is_no_number_of_nodes(hosts: str, count: int) -> None:
    job = sacct_job("NCPUS|NodeList", "60", hosts)

    assert (job.count, job.together) == (count, count > 1)
    assert job.size.cpu == 6000 // count


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("4000M", 1000 * 2**20),
        ("16G", 4 * GIB),
        ("4Gc", 12 * GIB),
        ("4Gn", 4 * GIB),
        ("1.5Tn", 1536 * GIB),
        ("400", 100 * 2**20),
        ("0", 0),
        ("0n", 0),
        ("", 0),
        ("Unknown", 0),
    ],
)
def test_sacct_reads_requested_memory_by_its_suffix(text: str, memory: int) -> None:
    assert sacct_job("NCPUS|NNodes|ReqMem", "12", "4", text).size.memory == memory


def test_sacct_says_that_memory_without_a_suffix_is_that_of_the_whole_job() -> None:
    header = "JobID|Submit|ElapsedRaw|NCPUS|ReqMem"
    note = "a ReqMem without c or n is the memory of all nodes of a job together"

    assert note in read_sacct([header, "1|2026-11-02T10:00:00|60|1|4G"]).notes
    assert note not in read_sacct([header, "1|2026-11-02T10:00:00|60|1|4Gn"]).notes


def test_sacct_prefers_resources_in_use_to_requested_ones() -> None:
    job = sacct_job(
        "NCPUS|ReqMem|AllocTRES|ReqTRES", "1", "1G", "cpu=1,mem=3G", "mem=2G,gres/gpu:h100=1,gres/gpu:a100=2"
    )

    assert (job.size.memory, job.size.gpu) == (3 * GIB, 3)
    assert sacct_job("NCPUS|AllocTRES|ReqTRES", "1", "gres/gpu=1,gres/gpumem=5G", "gres/gpu=4").size.gpu == 1


@pytest.mark.parametrize(
    ("column", "text", "limit_ms"),
    [
        ("TimelimitRaw", "120", 7_200_000),
        ("TimelimitRaw", "UNLIMITED", 0),
        ("TimelimitRaw", "Partition_Limit", 0),
        ("Timelimit", "2-00:30:00", 174_600_000),
        ("Timelimit", "30:00", 1_800_000),
        ("Timelimit", "UNLIMITED", 0),
        ("Timelimit", "", 0),
    ],
)
def test_sacct_time_limits(column: str, text: str, limit_ms: int) -> None:
    assert sacct_job(f"NCPUS|{column}", "1", text).limit_ms == limit_ms


def test_sacct_start_before_the_submission_is_no_wait() -> None:
    assert sacct_job("NCPUS|Start", "1", "2026-11-02T09:00:00").waited_ms == -1
    assert sacct_job("NCPUS|Start", "1", "2026-11-02T10:00:00").waited_ms == 0


@pytest.mark.parametrize(
    "other",
    [
        {"JobID": "12x"},
        {"JobID": "12\ufffd"},
        {"JobID": ""},
        {"Submit": "yesterday"},
        {"Submit": "2026-11-02T10:00:\ufffd0"},
        {"Submit": "1969-11-02T10:00:00"},
        {"Submit": "9" * 20},
        {"Start": "2026-13-02T10:00:00"},
        {"ElapsedRaw": "-5"},
        {"ElapsedRaw": "nan"},
        {"ElapsedRaw": "1e300"},
        {"ElapsedRaw": "9999999999"},
        {"ElapsedRaw": "9" * 5000},
        {"AllocCPUS": "inf"},
        {"AllocCPUS": "1\ufffd"},
        {"AllocCPUS": "9" * 30},
        {"AllocNodes": "-1"},
        {"AllocNodes": "1000001"},
        {"AllocTRES": "mem=lots"},
        {"AllocTRES": "gres/gpu=x"},
        {"AllocTRES": "mem"},
        {"AllocTRES": "mem=99999E"},
        {"AllocTRES": "", "ReqMem": "4Gx"},
        {"AllocTRES": "", "ReqMem": "1Ec", "AllocCPUS": "100"},
        {"TimelimitRaw": "soon"},
        {"User": "a|b"},
    ],
    ids=repr,
)
def test_sacct_counts_damaged_lines_and_reads_the_others(other: dict[str, str]) -> None:
    workload = read_sacct([HEADER, LINE, sacct_line(**other), LINE])

    assert len(workload.jobs) == 2
    assert workload.damaged_count == 1
    ((line, why),) = workload.damaged
    assert line == 3
    assert why.isprintable()
    assert len(why) < 250


@pytest.mark.parametrize("elapsed", ["", "5", "1:2:3:4", "INVALID", "99999999-00:00:00", "٣:00:00"])
def test_sacct_elapsed_clocks_that_are_none(elapsed: str) -> None:
    workload = read_sacct(["JobID|Submit|Elapsed|NCPUS", f"1|2026-11-02T10:00:00|{elapsed}|1"])

    assert workload.jobs == []
    assert workload.damaged_count + workload.left_out.total() == 1


def test_only_the_first_damaged_lines_are_kept() -> None:
    workload = read_sacct([HEADER, *["x"] * 50])

    assert workload.damaged_count == 50
    assert len(workload.damaged) == MOST_DAMAGED


SWF_LINE = "7 100 20 60.5 4 -1 -1 8 3600 1024 1 3 2 -1 5 -1 -1 -1"


def test_swf_reads_every_field() -> None:
    workload = read_swf(
        [
            "; Version: 2.2\n",
            "; UnixStartTime: 1793613600\n",
            "; MaxNodes: 4\n",
            ";MaxProcs: 16 (all)\n",
            "\n",
            SWF_LINE + "\n",
        ]
    )

    assert workload.format == "swf"
    assert workload.jobs == [
        WorkloadJob(
            name="7",
            submitted_ms=TEN_MS + 100_000,
            runs_ms=60_500,
            count=8,
            size=Resources(user_slots=1, cpu=100, memory=2**20),
            together=True,
            user="user3",
            group="group2",
            queue="queue5",
            limit_ms=3_600_000,
            waited_ms=20_000,
        )
    ]
    assert workload.nodes == [WorkloadNode(4, Resources(user_slots=4, cpu=400))]
    assert workload.damaged == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, "x"),
        (1, "1e300"),
        (2, "nan"),
        (3, "inf"),
        (3, "1e12"),
        (4, "1000001"),
        (7, "1e7"),
        (8, "1e18"),
        (9, "1e18"),
        (17, "\ufffd" * 100),
        (11, "1e300"),
    ],
)
def test_swf_counts_lines_with_absurd_values(place: int, value: str) -> None:
    values = SWF_LINE.split()
    values[place] = value
    workload = read_swf([SWF_LINE, " ".join(values), SWF_LINE + " 1", SWF_LINE])

    assert len(workload.jobs) == 2
    assert [line for line, _ in workload.damaged] == [2, 3]
    assert all(len(why) < 150 and why.isprintable() for _, why in workload.damaged)


def test_swf_ignores_absurd_headers() -> None:
    workload = read_swf(["; UnixStartTime: " + "9" * 5000, "; MaxProcs: 99999999999", "; MaxNodes: x", SWF_LINE])

    assert workload.jobs[0].submitted_ms == 100_000
    assert workload.nodes == []


def test_swf_leaves_out_what_never_ran() -> None:
    values = SWF_LINE.split()
    cancelled = [*values[:3], "-1", *values[4:10], "5", *values[11:]]
    no_run = [*values[:3], "-1", *values[4:]]
    no_processors = [*values[:4], "-1", "-1", "-1", "-1", *values[8:]]
    workload = read_swf(" ".join(line) for line in (cancelled, no_run, no_processors))

    assert workload.jobs == []
    assert workload.left_out == Counter(
        {
            "cancelled before the start": 1,
            "without a run time or a submit time": 1,
            "without a number of processors": 1,
        }
    )
