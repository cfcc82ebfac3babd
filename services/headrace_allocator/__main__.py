"""`python -m headrace_allocator --config FILE`"""

from __future__ import annotations

from headrace.runtime.service import run_service
from headrace_allocator.service import serve
from headrace_allocator.settings import AllocatorSettings


def main() -> None:
    """Run the service until it is asked to stop."""
    run_service("allocator", AllocatorSettings, serve)


if __name__ == "__main__":
    main()
