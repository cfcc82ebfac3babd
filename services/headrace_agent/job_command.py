"""The command of one job: its line in place of `{}`, and the files that it writes and reads. Pure."""

from __future__ import annotations

from typing import Final

from headrace.job_indexes import parse_indexes
from headrace.job_lines import with_line
from headrace.wire.heartbeat import JobKey, JobSpec

#: Opens the files as the account of the job, in its folder, and becomes the command. What cannot be opened is told on stderr, in the
#: job's log, and the job fails.
_WITH_FILES: Final = """
out=$1 err=$2 in=$3
shift 3
for file in "$out" "$err"; do
    case $file in */*) mkdir -p -- "${file%/*}/" || exit 126 ;; esac
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


def job_command(spec: JobSpec, key: JobKey) -> list[str]:
    """Return program and arguments of a job. Raises `BadInput` if its line makes them too long."""
    line = job_line(spec, key)
    argv = spec.argv if line is None else with_line(spec.argv, line)
    # If the program is a line, the shell starts it too: everybody sees which program of a job is missing, and a line is confidential.
    is_line = line is not None and "{}" in spec.argv[0]
    if not (spec.output or spec.error or spec.stdin or is_line):
        return argv
    index = str(job_index(spec, key))
    files = [name.replace("%i", index) for name in (spec.output, spec.error, spec.stdin)]
    return ["/bin/sh", "-c", _WITH_FILES, "sh", *files, *argv]
