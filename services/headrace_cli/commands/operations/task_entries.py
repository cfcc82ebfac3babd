"""Tasks of operations in files of `run --spec`.

tasks:
  server: {command: [./serve], cpu: 2, memory: 1GiB}
  worker: {command: [./work], jobs: 3, env: {MODE: fast}, gang: true}
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from headrace.errors import BadInput
from headrace.job_indexes import LARGEST_INDEX
from headrace.resources import RESOURCE_NAMES, Resources, exact_amount, parse_amount
from headrace.suggestions import hint
from headrace.tree_file.problems import Problems, shown
from headrace.tree_file.values import Listing, Map
from headrace.wire.operations import LARGEST_JOB_COUNT
from headrace.wire.tasks import LONGEST_TASK_NAME, MOST_TASKS, Task
from headrace_cli.commands.operations.key_values import parse_environment

KEY: Final = "tasks"
_KEYS: Final = ("command", "jobs", *RESOURCE_NAMES, "env", "first_index", "gang")
#: Keys of specs of YTsaurus, each with the key that means the same here.
OF_YTSAURUS: Final = {
    "cpu_limit": "cpu",
    "environment": "env",
    "gang_options": "gang",
    "gpu_limit": "gpu",
    "job_count": "jobs",
    "memory_limit": "memory",
}
#: Amounts of resources that a task does not name. `run` has the same defaults.
_DEFAULTS: Final = {"user_slots": "1", "cpu": "1"}


def tasks_in(value: object, problems: Problems) -> list[Task]:
    """Read the tasks of a file. Problems are added to `problems`; a task with a problem is left out."""
    if not isinstance(value, Map) or not value or len(value) > MOST_TASKS:
        problems.say(KEY, f"{shown(value)} cannot be used", f"a map of 1 to {MOST_TASKS} tasks by name", shown(value))
        return []
    return [task for name, given in value.items() if (task := _task(name, given, problems)) is not None]


def _task(name: str, given: object, problems: Problems) -> Task | None:
    place, before = f"{KEY}.{name}", len(problems.found)
    if not isinstance(given, Map):
        problems.say(place, f"{shown(given)} cannot be used", f"a map of {', '.join(_KEYS)}", shown(given))
        return None
    if not 0 < len(name) <= LONGEST_TASK_NAME:
        problems.say(place, "the name cannot be used", f"a name of 1 to {LONGEST_TASK_NAME} characters")
    for key in (key for key in given if key not in _KEYS):
        problems.say(f"{place}.{key}", "unknown key", hint(key, _KEYS, elsewhere=OF_YTSAURUS), key)
    command, found, jobs, environment = _command(given.get("command")), Resources(), 1, dict[str, str]()
    first_index, is_gang = None, given.get("gang", False)
    if not isinstance(is_gang, bool):
        problems.say(f"{place}.gang", f"{shown(is_gang)} cannot be used", "true or false", shown(is_gang))
    if not command:
        wrong = f"{shown(given['command'])} cannot be used" if "command" in given else "missing"
        problems.say(f"{place}.command", wrong, "a list: program, arguments")
    try:
        jobs = _jobs(given.get("jobs", 1), f"{place}.jobs")
        found = Resources(*(_amount(resource, given, place) for resource in RESOURCE_NAMES))
        first_index = _first_index(given.get("first_index"), f"{place}.first_index")
        environment = _environment(given.get("env", Map(0)), f"{place}.env", problems)
    except BadInput as error:
        problems.add(error)
    if len(problems.found) > before:
        return None
    return Task(name, command, jobs, found, environment, first_index, is_gang=is_gang is True)


def _command(value: object) -> list[str]:
    """Return the words of a command as the file has them; empty if the value is not a list of texts."""
    if not isinstance(value, Listing) or None in value.texts:
        return []
    return [text or "" for text in value.texts]


def _jobs(value: object, place: str) -> int:
    if type(value) is not int or not 0 < value <= LARGEST_JOB_COUNT:
        raise BadInput(place, shown(value), f"a whole number from 1 to {LARGEST_JOB_COUNT}")
    return value


def _first_index(value: object, place: str) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value <= LARGEST_INDEX):
        raise BadInput(place, shown(value), f"a whole number from 0 to {LARGEST_INDEX}")
    return value if type(value) is int else None


def _amount(resource: str, given: Map, place: str) -> int:
    text = given.texts.get(resource, _DEFAULTS.get(resource, "0")) if given.get(resource, "") is not None else ""
    return parse_amount(resource, text, place=f"{place}.{resource}")


def _environment(value: object, place: str, problems: Problems) -> dict[str, str]:
    if isinstance(value, Listing) and None not in value.texts:
        try:
            return parse_environment([text or "" for text in value.texts], os.environ)
        except BadInput as error:
            raise error.at(place) from None
    if isinstance(value, Map) and len(value.texts) == len(value):
        return dict(value.texts)
    expected = "a map of texts by name, or a list such as [NAME=VALUE, NAME]"
    problems.say(place, f"{shown(value)} cannot be used", expected, shown(value))
    return {}


def as_entries(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the tasks as a file names them, so that `tasks_in` reads the same tasks."""
    return {task.name: dict(_entry(task)) for task in tasks}


def _entry(task: Task) -> Iterator[tuple[str, Any]]:
    yield "command", task.argv
    yield "jobs", task.job_count
    for name, amount in zip(RESOURCE_NAMES, task.resources.as_tuple(), strict=True):
        if (written := exact_amount(name, amount)) != _DEFAULTS.get(name, exact_amount(name, 0)) or name == "cpu":
            yield name, written
    if task.first_index is not None:
        yield "first_index", task.first_index
    if task.is_gang:
        yield "gang", True
    if task.environment:
        # Variables are written as a list if a name is `<<`: the parser of files refuses this key, even in quotes.
        listed = [f"{name}={value}" for name, value in task.environment.items()]
        yield "env", listed if "<<" in task.environment else task.environment
