"""The shell script with which each job begins on its node: it sets the variables that only the node knows, and opens the files. Pure."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.wire.heartbeat import EXIT_SAVED
from headrace_cli.slurm.numbers import task_number
from headrace_cli.slurm.values import padded, pattern_pieces

#: Letters in patterns of file names, such as `%j`, if only the node knows the value. Each has the shell variable with the value there.
_ON_THE_NODE: Final = {"a": "SLURM_ARRAY_TASK_ID", "j": "SLURM_JOB_ID", "J": "SLURM_JOB_ID", "N": "HEADRACE_NODE"}
_VARIABLES: Final = """\
SLURMD_NODENAME=$HEADRACE_NODE SLURM_JOB_NODELIST=$HEADRACE_NODE SLURM_NODELIST=$HEADRACE_NODE SLURM_TASK_PID=$$
SLURM_JOBID=$SLURM_JOB_ID
export SLURM_JOB_ID SLURM_JOBID SLURMD_NODENAME SLURM_JOB_NODELIST SLURM_NODELIST SLURM_TASK_PID
[ "$HEADRACE_ATTEMPT" = 1 ] || export SLURM_RESTART_COUNT=$((HEADRACE_ATTEMPT - 1))
[ -z "${HEADRACE_GPUS-}" ] || export SLURM_JOB_GPUS="$HEADRACE_GPUS"
"""
#: `scontrol requeue` in a job sends this signal to the start script, which then ends with the exit status for a saved state.
REQUEUE_SIGNAL: Final = signal.SIGALRM
#: Variable that is set if the start script handles `REQUEUE_SIGNAL`.
CAN_REQUEUE: Final = "SLURM_HEADRACE_CAN_REQUEUE"
_WAIT_FOR_REQUEUE: Final = f"""\
requeue=
trap 'requeue=1' {REQUEUE_SIGNAL.name.removeprefix("SIG")}
export {CAN_REQUEUE}=1
"""
_END: Final = f"""\
[ -z "$requeue" ] || exit {EXIT_SAVED}
exit "$code"
"""
#: End of the start script that runs the user's script as a child in the same process group. Signals to the job reach both scripts.
_IN_GROUP: Final = '"$@"\ncode=$?\n' + _END
#: End of the start script for `--signal=B:…`. The user's script runs in a session of its own. The start script passes the signals of the
#: job on to the user's script, but not to the processes that the user's script started.
_ALONE: Final = (
    """\
exec 3<&0
setsid "$@" <&3 3<&- &
pid=$!
exec 3<&-
for name in TERM INT HUP QUIT USR1 USR2; do trap "kill -s $name $pid" "$name"; done
while :; do
    wait "$pid"
    code=$?
    kill -0 "$pid" 2>/dev/null || break
done
"""
    + _END
)


class StartWishes(NamedTuple):
    """The properties of a job from which its start script is made."""

    number: int
    is_array: bool
    #: Letters in patterns of file names, such as `%x`, if the value is known when the job is submitted; each with its value.
    words: Mapping[str, str]
    output: str = ""
    error: str = ""
    stdin: str = ""
    #: True: output is appended to the files. False: the files are emptied at the start.
    appends: bool = False
    #: Signal that only the steps of the job get; empty: none.
    ignored_signal: str = ""
    #: True: only the script gets the signals of the job.
    script_alone: bool = False
    #: True: the script is in the files of the operation.
    has_script: bool = True


def start_script(wishes: StartWishes) -> str:
    """Return the text for `sh -c`. Its arguments are those of the script, or the command."""
    number = str(wishes.number)
    if wishes.is_array:
        number = f"$(({task_number(wishes.number, 0)} + HEADRACE_JOB_INDEX))"
    lines = [f"SLURM_JOB_ID={number}"]
    if wishes.is_array:
        lines.append("export SLURM_ARRAY_TASK_ID=$HEADRACE_JOB_INDEX")
    lines.append(_VARIABLES.rstrip())
    lines += _files(wishes)
    if wishes.has_script:
        lines.append('set -- "$HEADRACE_FILES/slurm_script" "$@"')
    if wishes.ignored_signal:
        lines += [_WAIT_FOR_REQUEUE.rstrip(), f"trap '' {wishes.ignored_signal}", _IN_GROUP.rstrip()]
    elif wishes.script_alone:
        lines += [_WAIT_FOR_REQUEUE.rstrip(), _ALONE.rstrip()]
    else:
        lines.append('exec "$@"')
    return "\n".join(lines) + "\n"


def _files(wishes: StartWishes) -> list[str]:
    lines = []
    if wishes.stdin:
        lines.append(f"exec <{_shell_word(wishes.stdin, wishes)}")
    if wishes.output:
        output, error = _shell_word(wishes.output, wishes), _shell_word(wishes.error or wishes.output, wishes)
        lines += [f"output={output} error={error}", 'mkdir -p -- "$(dirname -- "$output")" "$(dirname -- "$error")"']
        to_error = "2>&1" if error == output else '2>>"$error"'
        if not wishes.appends:
            # A requeued job appends, as in Slurm, so that the output of its former run stays.
            empty = '>"$output"' if error == output else '>"$output" && : >"$error"'
            lines.append(f'[ "$HEADRACE_ATTEMPT" != 1 ] || : {empty}')
        lines.append(f'exec >>"$output" {to_error}')
    return lines


def _shell_word(pattern: str, wishes: StartWishes) -> str:
    """Return the name of a file as a word of the shell."""
    known = dict(wishes.words)
    parts = []
    for piece in pattern_pieces(pattern):
        variable = _ON_THE_NODE.get(piece.letter, "")
        if piece.letter in known:
            parts.append(shlex.quote(padded(known[piece.letter], piece.width)))
        elif variable:
            is_number = piece.width and piece.letter != "N"
            parts.append(f'"$(printf %0{piece.width}d "${variable}")"' if is_number else f'"${variable}"')
        else:
            parts.append(shlex.quote(piece.text))
    return "".join(parts) or "''"
