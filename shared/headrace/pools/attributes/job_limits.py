"""The attributes that limit jobs: their time and their resources. Pools and trees have them in the same form."""

from __future__ import annotations

from headrace.pools.attributes.kinds import Duration
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.attributes.schema import Attribute


def job_limit_attributes(default: str, maximum: str) -> list[Attribute]:
    """Return the attributes that limit the time and the resources of jobs.

    `default` and `maximum` are texts for people. `default` says which time limit applies while the attribute for the default time
    limit is not set, and `maximum` which longest time limit applies while the attribute for the longest time limit is not set.
    """
    of_jobs, of_operations = "one run of a job", "a whole operation, from its first running slot"
    return [
        Attribute(
            "default_time_limit", Duration(1), f"the time limit of {of_jobs} if the operation names none", default
        ),
        Attribute(
            "max_time_limit",
            Duration(1),
            f"the longest time limit of {of_jobs}; a start with a longer one is refused",
            maximum,
        ),
        Attribute(
            "default_operation_time_limit", Duration(1), f"the time limit of {of_operations}, if it names none", default
        ),
        Attribute(
            "max_operation_time_limit",
            Duration(1),
            f"the longest time limit of {of_operations}; a start with a longer one is refused",
            maximum,
        ),
        Attribute(
            "min_job_resource_limits",
            ResourceAmounts(),
            "the least that a job may ask for; smaller jobs do not start, and an operation of smaller jobs is refused",
            "no limit",
        ),
        Attribute(
            "max_job_resource_limits",
            ResourceAmounts(),
            "the most that a job may ask for; larger jobs do not start, and an operation of larger jobs is refused",
            "no limit",
        ),
    ]
