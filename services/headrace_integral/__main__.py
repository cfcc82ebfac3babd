"""`headrace-integral`: the process of the integral service."""

from __future__ import annotations

from headrace.installation.extras import require_in_process


def main() -> None:
    """Run the service until it is asked to stop."""
    require_in_process("server", "headrace-integral")
    from headrace.runtime.service import run_service
    from headrace_integral.service import serve
    from headrace_integral.settings import IntegralSettings

    run_service("integral", IntegralSettings, serve)


if __name__ == "__main__":
    main()
