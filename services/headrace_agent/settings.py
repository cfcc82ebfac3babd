"""Settings of the agent."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headrace.errors import BadInput
from headrace.ids import NodeName, node_name, node_name_from_host
from headrace.images import RUNTIME_TAGS
from headrace.resources import MOST_OF_A_NODE, Resources, format_amount, parse_amount
from headrace.runtime.settings import CommonSettings
from headrace.wire.heartbeat import short_text
from headrace.wire.nodes import LONGEST_MACHINE, LONGEST_TAG, MOST_TAGS, StopMode
from headrace_agent.container_command import ContainerRuntime
from headrace_agent.host import facts
from headrace_agent.host.account_mapping import AGENT, AccountMapping, parse_accounts
from headrace_agent.host.gpus import HostGpus, find_gpus, offered_gpus
from headrace_agent.host.isolation_from_jobs import IsolationFromJobs, isolation_of
from headrace_agent.host.state_folder import mark_of


class AgentSettings(CommonSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the agent of one host.

    SIGTERM and SIGINT stop the agent as `stop_mode` says. SIGUSR1 stops it after the jobs have ended by themselves. SIGUSR2 stops it and
    leaves the jobs running at the runner for the next agent. SIGQUIT kills the jobs at once and stops it. If a second of these signals asks
    for a more urgent stop than the first, it takes effect too.
    """

    #: Upper bound of the random delay before reconnecting, so that a fleet does not reconnect all at once.
    longest_reconnect_delay_ms: Annotated[int, msgspec.Meta(ge=10, le=60_000)] = 2_000
    #: Name of the node; empty: derived from the host's name.
    node: str = ""
    #: Machine name, by which two agents with the same node name are told apart; empty: host name, a hash of the machine id, and
    #: a mark of the state folder. `*`: any machine may have the node name.
    machine: str = ""
    #: Tags of the node, by which pools and operations choose nodes: a list, or one string with commas.
    tags: list[str] | str = ""
    #: Cores offered, such as 12 or 0.5; empty: all cores of the host (or of the container).
    cpu: str | int | float = ""
    #: Memory offered, such as 64GiB, or a number of bytes; empty: all memory of the host (or of the container).
    memory: str | int = ""
    #: GPUs offered, at most as many as devices are known; empty: all known devices.
    gpu: str | int = ""
    #: GPU devices that jobs may get, such as `0,2`: numbers of device files (`/dev/nvidia<N>`), UUIDs, or names of devices that
    #: the agent does not find. A list, or one string with commas; empty: all devices that the agent finds.
    gpus: list[str] | str = ""
    #: User slots offered: the largest number of jobs at a time, if each job takes one slot. The bound of 1,000 keeps every heartbeat well
    #: below the largest message.
    user_slots: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 1_000
    #: Network units offered; the owner of the fleet decides what a unit means.
    network: Annotated[int, msgspec.Meta(ge=0, le=2**50)] = 0
    #: Folder of the runner for jobs, ends, logs and scratch folders; empty: `headrace/agent-<node>` in the user's state folder.
    state_folder: str = ""
    #: Folder for the logs of jobs; empty: `logs` in the state folder.
    logs_folder: str = ""
    #: Folder for the files of operations; empty: `files` in the state folder. Every account that jobs run as must be able to
    #: reach it.
    files_folder: str = ""
    #: PATH of the jobs; empty: the agent's own PATH, followed by the folder of its Python interpreter.
    path: str = ""
    #: Accounts that jobs run as, if the agent runs as root; any other agent runs all jobs as its own account. `same`: the account with the
    #: name of the person; a table such as `{alice = "research"}`: the account that the table names for the person; `agent`: the agent's own
    #: account. Jobs of a person without an account do not start.
    users: dict[str, str] | str = ""
    #: Smallest uid allowed with `users` set to `same`. Jobs of a person whose account has a smaller uid do not start, since
    #: that is a system account such as `daemon`. 0: `UID_MIN` of /etc/login.defs, or 1000 if that file does not set it.
    lowest_uid: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    #: Time after which an unanswered heartbeat is given up.
    heartbeat_timeout_ms: Annotated[int, msgspec.Meta(ge=10, le=600_000)] = 2_000
    #: Time after which an unanswered request to enrol the node is given up.
    enrol_timeout_ms: Annotated[int, msgspec.Meta(ge=10, le=600_000)] = 5_000
    #: Effect of SIGTERM: `interrupt`, `wait`, `leave` or `kill`.
    stop_mode: StopMode = StopMode.INTERRUPT
    #: When the agent stops: time from the interruption of the jobs to their kill. For jobs of an operation with a shorter interruption
    #: timeout, that timeout applies. The agent then waits up to 3 s more for the last ends to be recorded.
    stop_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=86_400_000)] = 8_000
    #: Program that runs the jobs of operations with an image: `podman` (with crun), `apptainer`, `auto` for the first of them that the
    #: host has when the agent starts, or `off`.
    containers: Literal["auto", "podman", "apptainer", "off"] = "auto"
    #: False: something else starts the runner, such as a systemd unit that `headrace agent install` wrote.
    starts_runner: bool = True
    #: The strongest limits on jobs to try. This setting does not protect the agent itself from jobs; that depends on `users`.
    isolation: Literal["auto", "cgroup2", "rlimit", "none"] = "auto"
    #: A cgroup v2 folder that is delegated to this user; empty: none.
    cgroup: str = ""
    #: Upper bound of processes and threads of one job at a time, where cgroups count them. 0: no limit.
    job_pids: Annotated[int, msgspec.Meta(ge=0, le=2**22)] = 4_096
    #: Shell command that checks the host, run as the agent's account with the environment of jobs. While it fails, no job starts
    #: on the node, and `headrace node list` shows the end of its output. Empty: no check.
    health_command: str = ""
    #: Time from the end of the health command to its next run.
    health_interval_ms: Annotated[int, msgspec.Meta(ge=100, le=86_400_000)] = 60_000
    #: Time after which the health command is killed and counts as failed.
    health_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=3_600_000)] = 10_000
    #: Time after which a session of `headrace shell` or `headrace op exec` is ended if its person is no longer connected, for example after
    #: a lost connection or a closed lid. A changed value applies to jobs that start after the next restart of the runner.
    session_grace_ms: Annotated[int, msgspec.Meta(ge=1_000, le=86_400_000)] = 60_000
    #: Bytes that are kept of each output stream of a job, if its operation sets no cap.
    log_cap_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**60)] = 16 * 1024 * 1024
    #: Upper bound in bytes of what is kept of one output stream of one job, whatever cap its operation sets.
    largest_log_cap_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**60)] = 1024 * 1024 * 1024
    #: Upper bound in bytes of all logs together. Beyond it, logs of the person with the most bytes are removed: first those of the
    #: operation that has run nothing here for the longest time.
    logs_total_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**60)] = 10 * 1024 * 1024 * 1024

    def node_name(self) -> NodeName:
        """Return the name of the node.

        Raises `BadInput` if the setting is not a legal name, or if it is empty and no legal name can be derived from the host's name.
        """
        return node_name(self.node) if self.node else node_name_from_host(facts.host_name())

    def accounts(self) -> AccountMapping:
        """Return the mapping from persons to accounts; empty unless the agent runs as root. Raises `BadInput`."""
        accounts = parse_accounts(self.users, self.lowest_uid or facts.lowest_uid_of_people())
        return accounts if facts.is_root() else AccountMapping()

    def warning_of_accounts(self) -> str:
        """Return a warning if the setting `users` has no effect or lets jobs run as root; else an empty string."""
        if not facts.is_root():
            has_names = self.users and self.users != AGENT
            return (
                "jobs run as the agent's account, because only root can start them as other accounts"
                if has_names
                else ""
            )
        if self.users == AGENT:
            return "all jobs run as root, regardless of who starts them"
        return (
            ""
            if self.users
            else f"no job starts: the agent is root, and its setting `users` names neither accounts nor `{AGENT}`"
        )

    def agent_isolation(self) -> IsolationFromJobs:
        """Return whether jobs can reach the agent's key or the socket of its runner, and why."""
        key = [facts.absolute(self.credential_file)] if self.credential_file else []
        return isolation_of(self.users, [*key, self.state()], is_root=facts.is_root())

    def machine_name(self) -> str:
        """Return a name of the machine and its state folder, by which two agents with the same node name are told apart.

        Two agents on one machine with different state folders need different names too: neither knows the jobs of the other agent.
        """
        if self.machine == "*":
            return ""
        if self.machine:
            return short_text(self.machine, LONGEST_MACHINE)
        mark = mark_of(self.state())
        return facts.machine_name() + (f", state folder {mark}" if mark else "")

    def tag_list(self, containers: ContainerRuntime | None = None) -> list[str]:
        """Return the tags of the node, including the tag of the container runtime, sorted and without duplicates.

        Raises `BadInput` if there are too many tags, if a tag is too long, or if the setting contains the tag of a container runtime.
        """
        named = set(_listed(self.tags))
        if wrong := named.intersection(RUNTIME_TAGS.values()):
            raise BadInput("tags", min(wrong), "no tag of a container runtime: the agent adds this tag by itself")
        found = sorted({*named, containers.tag} if containers is not None else named)
        for tag in found:
            if len(tag) > LONGEST_TAG:
                raise BadInput("tags", tag[:20] + "…", f"a tag of at most {LONGEST_TAG} characters")
        if len(found) > MOST_TAGS:
            raise BadInput.because("tags", f"the node has {len(found)} tags; at most {MOST_TAGS} are allowed")
        return found

    def host_gpus(self) -> HostGpus:
        """Return the GPU devices of the host, and which of them the node offers. Raises `BadInput`."""
        count = parse_amount("gpu", self.gpu) if self.gpu != "" else None
        return offered_gpus(find_gpus(), _listed(self.gpus), count)

    def total(self, gpus: int) -> Resources:
        """Return the resources that the node offers. `gpus` is the number of offered GPU devices. Raises `BadInput`."""
        total = Resources(
            user_slots=self.user_slots,
            cpu=parse_amount("cpu", self.cpu) if self.cpu != "" else facts.cpu_centi(),
            gpu=gpus,
            memory=parse_amount("memory", self.memory) if self.memory != "" else facts.memory_bytes(),
            network=self.network,
        )
        name = total.name_above(MOST_OF_A_NODE)
        if name:
            most = format_amount(name, getattr(MOST_OF_A_NODE, name))
            raise BadInput(name, format_amount(name, getattr(total, name)), f"at most {most} for a node")
        return total

    def state(self) -> str:
        """Return the absolute path of the state folder."""
        return facts.absolute(self.state_folder or facts.default_state_folder(self.node_name()))

    def files(self) -> str:
        """Return the absolute path of the folder for the files of operations."""
        return facts.absolute(self.files_folder) if self.files_folder else f"{self.state()}/files"

    def exchange(self) -> str:
        """Return the absolute path of the folder for progress and deadline files.

        The folder lies beside the folder of the operations' files, so an account that can reach one of the two folders can reach the other.
        """
        return f"{self.files()}-exchange"

    def logs(self) -> str:
        """Return the absolute path of the logs folder."""
        return facts.absolute(self.logs_folder) if self.logs_folder else f"{self.state()}/logs"


def _listed(names: list[str] | str) -> list[str]:
    """Return the names of a setting that is a list or one string with commas, without empty names."""
    items = names.split(",") if isinstance(names, str) else names
    return [name for item in items if (name := item.strip())]
