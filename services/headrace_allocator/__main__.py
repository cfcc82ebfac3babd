"""`python -m headrace_allocator --config FILE`"""

from __future__ import annotations

from headrace.installation.extras import require_in_process


def main() -> None:
    """Run the service until it is asked to stop."""
    require_in_process("server", "headrace-allocator")
    from headrace.runtime.service import run_service
    from headrace_allocator.service import serve
    from headrace_allocator.settings import AllocatorSettings

    run_service("allocator", AllocatorSettings, serve)


if __name__ == "__main__":
    main()
