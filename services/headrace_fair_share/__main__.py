"""`headrace-fair-share`: the process of the fair-share service."""

from __future__ import annotations

from headrace.runtime.service import run_service
from headrace_fair_share.service import serve
from headrace_fair_share.settings import FairShareSettings


def main() -> None:
    """Run the service until it is asked to stop."""
    run_service("fair_share", FairShareSettings, serve)


if __name__ == "__main__":
    main()
