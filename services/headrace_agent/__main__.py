"""`headrace-agent`: the agent of this host."""

from __future__ import annotations

from headrace.runtime.service import run_service
from headrace.wire import subjects
from headrace_agent.service import serve
from headrace_agent.settings import AgentSettings


def main() -> None:
    """Run the agent until it is asked to stop."""
    run_service("agent", AgentSettings, serve, inbox=lambda settings: subjects.inbox("node", settings.node_name()))


if __name__ == "__main__":
    main()
