"""Settings of the agent."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headrace.errors import BadInput
from headrace.ids import NodeName, node_name, node_name_from_host
from headrace.resources import MOST_OF_A_NODE, Resources, format_amount, parse_amount
from headrace.runtime.settings import CommonSettings
from headrace.wire.heartbeat import short_text
from headrace.wire.nodes import LONGEST_MACHINE, LONGEST_TAG, MOST_TAGS, StopMode
from headrace_agent.host import facts
from headrace_agent.host.accounts import AGENT, Accounts, parse_accounts
from headrace_agent.host.isolation import Isolation, isolation_of
from headrace_agent.host.state_folder import mark_of


class AgentSettings(CommonSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent of one host.

    SIGTERM and SIGINT stop it as `stop_mode` says. SIGUSR1 lets the jobs end first, SIGUSR2 leaves them running at the runner for the
    next agent, SIGQUIT kills them at once. A more urgent wish may follow a gentler one.
    """

    #: Of a whole fleet, which would come back at once.
    longest_reconnect_delay_ms: Annotated[int, msgspec.Meta(ge=10, le=60_000)] = 2_000
    #: The node's name; empty: made from the host's name.
    node: str = ""
    #: The machine, should two be given one node's name; empty: its host name, a hash of its machine id, and its state folder.
    #: `*`: any may have the name.
    machine: str = ""
    #: Comma-separated, or a list: what pools and operations may ask a node to have.
    tags: list[str] | str = ""
    #: Cores offered, such as 12 or 0.5; empty: what the host (or the container) has.
    cpu: str | int | float = ""
    #: Memory offered, such as 64GiB; empty: what the host (or the container) has.
    memory: str | int = ""
    #: GPUs offered. They are not looked for.
    gpu: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    #: Jobs at a time, where they take one slot each. A thousand keep every heartbeat well below the largest message.
    user_slots: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 1_000
    #: Network units offered; they mean what the owner of the fleet says.
    network: Annotated[int, msgspec.Meta(ge=0, le=2**50)] = 0
    #: Folder of the runner: jobs, ends, logs, scratch; empty: `headrace/agent-<node>` in the user's state folder.
    state_folder: str = ""
    #: Folder for logs of jobs; empty: `logs` in the state folder.
    logs_folder: str = ""
    #: Folder for files of operations; empty: `files` in the state folder. Every account that jobs run as must reach it.
    files_folder: str = ""
    #: PATH of the jobs; empty: the agent's own, with the folder of its interpreter at the end.
    path: str = ""
    #: Accounts as which jobs run where the agent is root, else all run as the agent: `same` for that of the person's name, a table
    #: such as `{alice = "research"}`, or `agent` for its own. No job starts for whoever has none.
    users: dict[str, str] | str = ""
    #: With `users` `same`, persons whose account has a smaller uid start no job: it is an account of the system, such as `daemon`.
    #: 0: `UID_MIN` of /etc/login.defs, or 1000 where that file does not say it.
    lowest_uid: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    #: An unanswered heartbeat is given up after this.
    heartbeat_timeout_ms: Annotated[int, msgspec.Meta(ge=10, le=600_000)] = 2_000
    #: An unanswered request to be enrolled, likewise.
    enrol_timeout_ms: Annotated[int, msgspec.Meta(ge=10, le=600_000)] = 5_000
    #: What SIGTERM means: `interrupt`, `wait`, `leave` or `kill`.
    stop_mode: StopMode = StopMode.INTERRUPT
    #: At a stop, from the interruption of the jobs to their kill, unless their own timeout is shorter. 3 s more are for the last ends.
    stop_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=86_400_000)] = 8_000
    #: False: the runner is started by something else, such as a unit of systemd that `headrace agent install` wrote.
    starts_runner: bool = True
    #: The strongest limits of jobs to try. What keeps jobs from the agent itself is another matter, and `users` says it.
    isolation: Literal["auto", "cgroup2", "rlimit", "none"] = "auto"
    #: A cgroup v2 folder that was delegated to this user; empty: none.
    cgroup: str = ""
    #: Processes and threads of one job at a time, where cgroups count them. 0: no limit.
    job_pids: Annotated[int, msgspec.Meta(ge=0, le=2**22)] = 4_096
    #: Of one stream of one job whose operation names no cap.
    log_cap_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**60)] = 16 * 1024 * 1024
    #: Of one stream of one job at most, whatever cap its operation names.
    largest_log_cap_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**60)] = 1024 * 1024 * 1024
    #: Of all logs together; the oldest of operations that run nothing here go first.
    logs_total_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**60)] = 10 * 1024 * 1024 * 1024

    def node_name(self) -> NodeName:
        """Raises `BadInput` when the setting is no legal name, or nothing usable is left of the host's."""
        return node_name(self.node) if self.node else node_name_from_host(facts.host_name())

    def accounts(self) -> Accounts:
        """The accounts of persons, none unless the agent is root. Raises `BadInput`."""
        accounts = parse_accounts(self.users, self.lowest_uid or facts.lowest_uid_of_people())
        return accounts if facts.is_root() else Accounts()

    def warning_of_accounts(self) -> str:
        """The words on a setting `users` that does not do what it says, or gives the host away. Empty for any other."""
        if not facts.is_root():
            has_names = self.users and self.users != AGENT
            return "jobs run as the agent, since only root starts them as other accounts" if has_names else ""
        if self.users == AGENT:
            return "all jobs run as root, whoever starts them"
        return "" if self.users else f"no job starts: the agent is root, and neither accounts nor `{AGENT}` are set"

    def agent_isolation(self) -> Isolation:
        """The isolation of the agent's key, and of the socket of its runner, from jobs."""
        key = [facts.absolute(self.credential_file)] if self.credential_file else []
        return isolation_of(self.users, [*key, self.state()], is_root=facts.is_root())

    def machine_name(self) -> str:
        """The machine and its state folder, by which this agent is told from another that was given the same name.

        One beside it with a folder of its own knows as little of the jobs here as one elsewhere.
        """
        if self.machine == "*":
            return ""
        if self.machine:
            return short_text(self.machine, LONGEST_MACHINE)
        mark = mark_of(self.state())
        return facts.machine_name() + (f", state folder {mark}" if mark else "")

    def tag_list(self) -> list[str]:
        """The tags, each once. Raises `BadInput` for more or longer ones than a node may have."""
        tags = self.tags.split(",") if isinstance(self.tags, str) else self.tags
        found = sorted({tag.strip() for tag in tags} - {""})
        for tag in found:
            if len(tag) > LONGEST_TAG:
                raise BadInput("tags", tag[:20] + "…", f"tags of at most {LONGEST_TAG} characters")
        if len(found) > MOST_TAGS:
            raise BadInput("tags", f"{len(found)} tags", f"at most {MOST_TAGS}")
        return found

    def total(self) -> Resources:
        """The resources that the node offers. Raises `BadInput`."""
        total = Resources(
            user_slots=self.user_slots,
            cpu=parse_amount("cpu", self.cpu) if self.cpu != "" else facts.cpu_centi(),
            gpu=self.gpu,
            memory=parse_amount("memory", self.memory) if self.memory != "" else facts.memory_bytes(),
            network=self.network,
        )
        name = total.name_above(MOST_OF_A_NODE)
        if name:
            most = format_amount(name, getattr(MOST_OF_A_NODE, name))
            raise BadInput(name, format_amount(name, getattr(total, name)), f"at most {most} of a node")
        return total

    def state(self) -> str:
        """Absolute path of the state folder."""
        return facts.absolute(self.state_folder or facts.default_state_folder(self.node_name()))

    def files(self) -> str:
        """Absolute path of the folder for files of operations."""
        return facts.absolute(self.files_folder) if self.files_folder else f"{self.state()}/files"

    def exchange(self) -> str:
        """Absolute path of the folder in which jobs and the agent leave word for each other. Whoever reaches their files reaches it."""
        return f"{self.files()}-exchange"

    def logs(self) -> str:
        """Absolute path of the logs folder."""
        return facts.absolute(self.logs_folder) if self.logs_folder else f"{self.state()}/logs"
