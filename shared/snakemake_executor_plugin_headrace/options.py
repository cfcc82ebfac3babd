"""Settings of the plugin, and what the resources of a job mean to Headrace."""

# Snakemake reads the types of the settings. This module therefore does not import `annotations` from `__future__`, which would turn the
# types into texts.
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from headrace.client import JobOptions

common_settings: Final = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
)


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]
    """Options of `snakemake` with the prefix `--headrace-`."""

    pool: str = field(default="", metadata={"help": "Pool of the operations, by name or path.", "env_var": False})
    node_filter: str = field(
        default="",
        metadata={"help": "Nodes that may run the jobs, by their tags, such as 'ssd & !old'.", "env_var": False},
    )


def job_options(threads: int, resources: Mapping[str, Any], settings: ExecutorSettings) -> JobOptions:
    """Return the options of a job's operation. A job without `mem_mb` or `runtime` has no limit of memory or time.

    The resources `headrace_pool` and `headrace_node_filter` of a rule override the settings. Snakemake itself retries failed jobs.
    """
    options: JobOptions = {
        "cpu": max(1, threads),
        "memory": f"{resources.get('mem_mb', 0)}MB",
        "gpu": resources.get("gpu", 0),
        "pool": resources.get("headrace_pool", settings.pool) or None,
        "node_filter": resources.get("headrace_node_filter", settings.node_filter) or None,
        "tries": 1,
    }
    # Snakemake's resources are a list whose entries have names: `in` would look for a value, not for a name.
    if (minutes := resources.get("runtime")) is not None:
        options["time_limit"] = f"{minutes}m"
    return options
