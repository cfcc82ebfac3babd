"""`headrace-fair-share`: the process of the fair-share service."""

from __future__ import annotations

from headrace.installation.extras import require_in_process


def main() -> None:
    """Run the service until it is asked to stop."""
    require_in_process("server", "headrace-fair-share")
    from headrace.runtime.service import run_service
    from headrace_fair_share.service import serve
    from headrace_fair_share.settings import FairShareSettings

    run_service("fair_share", FairShareSettings, serve)


if __name__ == "__main__":
    main()
