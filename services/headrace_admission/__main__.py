"""`python -m headrace_admission --config FILE`"""

from __future__ import annotations

from headrace.runtime.service import run_service
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings


def main() -> None:
    """Run the service until it is asked to stop."""
    run_service("admission", AdmissionSettings, serve)


if __name__ == "__main__":
    main()
