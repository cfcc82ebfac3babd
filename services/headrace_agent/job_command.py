"""The command of one job: its line in place of `{}`, and the files that it writes and reads. Pure."""

from __future__ import annotations

from typing import Final

from headrace.job_indexes import parse_indexes
from headrace.wire.heartbeat import JobKey, JobSpec

#: Opens the files as the account of the job, in its folder, and becomes the command. What cannot be opened is told on stderr, in the
#: job's log, and the job fails.
_WITH_FILES: Final = """
out=$1 err=$2 in=$3
shift 3
for file in "$out" "$err"; do
    case $file in */*) mkdir -p -- "${file%/*}" || exit 126 ;; esac
done
[ -z "$in" ] || exec <"$in"
if [ -n "$err" ] && [ "$err" != "$out" ]; then exec 2>"$err"; fi
[ -z "$out" ] || exec >"$out"
if [ -n "$err" ] && [ "$err" = "$out" ]; then exec 2>&1; fi
exec "$@"
"""


def job_index(spec: JobSpec, key: JobKey) -> int:
    """Return the index that a job sees."""
    return parse_indexes(spec.indexes).of_job(key.index) if spec.indexes else key.index


def job_line(spec: JobSpec, key: JobKey) -> str | None:
    """Return the line of a job, or None if its operation has none for it."""
    index = job_index(spec, key)
    return spec.lines[index] if index < len(spec.lines) else None


def job_argv(spec: JobSpec, key: JobKey) -> list[str]:
    """Return program and arguments of a job as its operation names them, with the job's line."""
    line = job_line(spec, key)
    return spec.argv if line is None else [word.replace("{}", line) for word in spec.argv]


def with_files(spec: JobSpec, key: JobKey, argv: list[str]) -> list[str]:
    """Return what starts `argv` with the files of a job."""
    if not (spec.output or spec.error or spec.stdin):
        return argv
    index = str(job_index(spec, key))
    files = [name.replace("%i", index) for name in (spec.output, spec.error, spec.stdin)]
    return ["/bin/sh", "-c", _WITH_FILES, "sh", *files, *argv]
