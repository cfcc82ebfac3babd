"""Read the settings of the fair scheduler in yarn-site.xml."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.pools import TREE_ATTRIBUTES, Defects, TreeOptions
from headrace.tree_file.problems import FileProblem, Problems, shown
from headrace_cli.yarn.amounts import java_number, whole_number
from headrace_cli.yarn.elements import read_elements
from headrace_cli.yarn.warnings import Warnings

_FAIR: Final = "yarn.scheduler.fair."
_FLAGS: Final = {
    "yarn.acl.enable": "acls",
    "preemption": "preemption",
    "user-as-default-queue": "user_queues",
    "allow-undeclared-pools": "undeclared",
}
#: Options of preemption, by the name of YARN's property. An option whose property the file does not set is reset to its default.
_PREEMPTION: Final = {
    "preemption.cluster-utilization-threshold": "yarn/cluster_utilization_threshold",
    "waitTimeBeforeKill": "yarn/wait_before_kill",
    "waitTimeBeforeNextStarvationCheck": "yarn/wait_before_next_check",
    "preemptionInterval": "yarn/legacy_interval",
}
_THRESHOLD: Final = _PREEMPTION["preemption.cluster-utilization-threshold"]
#: Options whose properties exist in only one of YARN's two preemption engines.
_INTERVAL, _PAUSE = _PREEMPTION["preemptionInterval"], _PREEMPTION["waitTimeBeforeNextStarvationCheck"]
#: Other options, by the name of YARN's property. An option whose property the file does not set keeps its value.
_MORE: Final = {"update-interval-ms": "fair_share_update_period"}
_OTHERS: Final = (
    "yarn.acl.enable",
    "yarn.scheduler.increment-allocation-mb",
    "yarn.scheduler.increment-allocation-vcores",
)


class YarnSite(msgspec.Struct):
    """Settings of the fair scheduler, with YARN's defaults for what the file does not set."""

    preemption: bool = False
    user_queues: bool = True
    undeclared: bool = True
    #: True if access lists are in force.
    acls: bool = False
    #: True if the file is for the older preemption engine, from before Hadoop 2.9. Such a file sets an interval, which only that engine
    #: has.
    is_legacy: bool = False
    #: Options of the tree. Options of preemption that the file does not set are at their defaults, as in YARN.
    options: dict[str, object] = {}


def read_site(data: bytes, problems: Problems, warnings: Warnings) -> YarnSite:
    """Read a file. Raises `UnusableFile` with all problems of the file."""
    site, lines = YarnSite(options=dict.fromkeys(_PREEMPTION.values())), dict[str, int]()
    for element in read_elements(data, problems, "configuration").children:
        said = {child.name: child for child in element.children}
        if element.name != "property" or "name" not in said:
            warnings.say("W01", element.line, element.name, "is not a property with name and value, and is ignored")
            continue
        name = said["name"].text.strip()
        if not name.startswith(_FAIR) and name not in _OTHERS:
            continue
        line = said["value"].line if "value" in said else element.line
        if name in lines:
            warnings.say("W23", line, name, f"is used instead of line {lines[name]}")
        lines[name] = line
        text = said["value"].text.strip() if "value" in said else ""
        key = name.removeprefix(_FAIR)
        if key in _FLAGS:
            if text.lower() not in ("true", "false"):
                problems.found.append(FileProblem.of(line, BadInput(name, text, "true or false")))
            setattr(site, _FLAGS[key], text.lower() == "true")
        elif key in _PREEMPTION or key in _MORE:
            option = (_PREEMPTION | _MORE)[key]
            try:
                # The numbers need no conversion: the periods of both systems are in milliseconds.
                number = java_number(text, name) if option == _THRESHOLD else whole_number(text)
                value = text if number is None else number
                TREE_ATTRIBUTES.changed(TreeOptions(), {option: value}, name)
                site.options[option] = value
            except BadInput as error:
                problems.found.append(FileProblem.of(line, error))
            except Defects as error:
                problems.found.append(FileProblem.of(line, BadInput(name, text, error.problems[0].expected)))
            site.is_legacy = bool(site.options[_INTERVAL]) and not site.options[_PAUSE]
        elif key != "allocation.file":
            warnings.say("W25", line, name, f"{shown(text)} has no counterpart here and is dropped")
    problems.refuse()
    return site
