"""The executor plugin of Snakemake: `snakemake --executor headrace` runs each job of a workflow as an operation.

Snakemake finds the plugin by the name of this package, and looks for `Executor`, `ExecutorSettings` and `common_settings`.
"""

from snakemake_executor_plugin_headrace.executor import Executor
from snakemake_executor_plugin_headrace.options import ExecutorSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
