"""The command of one job: `{}` is replaced by the job's line, and the job's input and output are connected to files. Pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from headrace.job_indexes import parse_indexes
from headrace.job_lines import with_line
from headrace.wire.heartbeat import JobKey, JobSpec
from headrace.wire.tasks import task_of

#: Shell code that opens the files as the account of the job, in the job's folder, and becomes the command. If a file cannot be opened, the
#: shell writes the error to stderr, which goes to the job's log, and the job fails. The code sets no variable of the shell, because the
#: variable would replace the job's own variable of that name.
_WITH_FILES: Final = """
case $1 in */*) [ -d "${1%/*}/" ] || mkdir -p -- "${1%/*}/" || exit 126 ;; esac
case $2 in */*) [ -d "${2%/*}/" ] || mkdir -p -- "${2%/*}/" || exit 126 ;; esac
[ -z "$3" ] || exec <"$3"
if [ -n "$2" ] && [ "$2" != "$1" ]; then exec 2>"$2"; fi
[ -z "$1" ] || exec >"$1"
if [ -n "$2" ] && [ "$2" = "$1" ]; then exec 2>&1; fi
shift 3
exec "$@"
"""
#: Pattern of the names of variables that every shell hands on unchanged. Some shells drop names such as `a.b`, and set their own values for
#: the three names in the pattern. Variables whose names do not match are passed as arguments of `env`, which other accounts of the host can
#: see until the program runs.
_KEPT_BY_SHELL: Final = re.compile(r"(?!(?:IFS|OPTIND|PPID)\Z)[A-Za-z_][A-Za-z0-9_]*\Z")


def spec_of_job(spec: JobSpec, key: JobKey) -> JobSpec:
    """Return the spec of one job. If the operation has tasks, it has the command of the job's task, and the task's variables are added."""
    found = task_of(spec.tasks, key.index)
    if found is None:
        return spec
    environment = spec.environment | found.task.environment
    return msgspec.structs.replace(spec, argv=found.task.argv, environment=environment)


def job_index(spec: JobSpec, key: JobKey) -> int:
    """Return the index that a job gets in its environment and for its line. If the operation lists `indexes`, it is the job's entry
    there.
    """
    return parse_indexes(spec.indexes).of_job(key.index) if spec.indexes else key.index


def job_line(spec: JobSpec, key: JobKey) -> str | None:
    """Return the line that replaces `{}` in the command of this job, or None if its operation has no line for this job."""
    index = job_index(spec, key)
    return spec.lines[index] if index < len(spec.lines) else None


def job_argv(spec: JobSpec, key: JobKey) -> list[str]:
    """Return the program and the arguments of a job, with the job's line in place of `{}`.

    Raises `BadInput` if the arguments become too long.
    """
    line = job_line(spec, key)
    return spec.argv if line is None else with_line(spec.argv, line)


def with_files(spec: JobSpec, key: JobKey, argv: list[str]) -> list[str]:
    """Return the command that connects a job's input and output to its files and then runs `argv`; `argv` itself if that needs no shell."""
    # Lines of jobs are confidential, but everybody can see the reason of a job's end. If a line names a program that is missing, the runner
    # would put the program's name into the reason. So the shell starts the program: it reports the name in the job's log only.
    is_line = "{}" in spec.argv[0] and job_line(spec, key) is not None
    if not (spec.output or spec.error or spec.stdin or is_line):
        return argv
    index = str(job_index(spec, key))
    files = [name.replace("%i", index) for name in (spec.output, spec.error, spec.stdin)]
    lost = [f"{name}={value}" for name, value in spec.environment.items() if not _KEPT_BY_SHELL.match(name)]
    if lost:
        argv = ["/usr/bin/env", *lost, *argv]
    return ["/bin/sh", "-c", _WITH_FILES, "sh", *files, *argv]
