"""An executor of `concurrent.futures` whose calls run as jobs. Needs `cloudpickle`: the extra `executor`."""

from headrace.executor.executor import Executor
from headrace.executor.outcomes import JobFailed, RemoteTraceback

__all__ = ["Executor", "JobFailed", "RemoteTraceback"]
