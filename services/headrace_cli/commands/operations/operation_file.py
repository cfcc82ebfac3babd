"""Files of operations in YAML or JSON: `run --spec` reads them, `op get --spec` writes them.

    command: [python3, work.py]
    pool: research
    jobs: 50
    memory: 2GiB
    env: {MODE: fast}
    fields: {fair_share_starvation_timeout_ms: 5000}

Each key is an option of `run`, with `_` in place of `-`, and its value is parsed as on the command line. `fields` has the fields of
the operation spec for which `run` has no option, as `op get --json` prints them. In place of the command, the number of jobs and
their size, `tasks` may name several kinds of jobs (`task_entries.py` beside this module).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from cyclopts import Argument, ArgumentCollection, Token

from headrace.durations import exact_duration
from headrace.errors import BadInput
from headrace.ids import TreeName
from headrace.job_tasks import check_tasks
from headrace.pools.amounts import PartialResources
from headrace.resources import RESOURCE_NAMES, Resources, exact_amount, parse_amount
from headrace.retry_rules import check_memory_on_oom
from headrace.suggestions import hint
from headrace.tree_file.problems import Problems, shown
from headrace.tree_file.values import STDIN, Listing, Map, parse, read
from headrace.wire.operation_spec import (
    LARGEST_JOB_COUNT,
    LONGEST_RETRY_BACKOFF_MS,
    RETRY_BACKOFF_MS,
    OnLostNode,
    OperationSpec,
    PerTree,
    PreemptionMode,
)
from headrace.wire.preemption import InterruptSignal
from headrace.wire.refusals import BadRequest, Refused
from headrace.wire.tasks import Task
from headrace_cli.commands.operations import task_entries
from headrace_cli.option_names import option_of

COMMAND: Final = "command"
_FIELDS: Final = "fields"
_ENV: Final = "env"
#: Fields of the operation spec that each start sets for itself.
_NOT_KEPT: Final = frozenset({"trace"})
#: Fields whose default in `run` differs from their default in the operation spec.
_CHOSEN_BY_RUN: Final = frozenset({"tree", "working_directory", "tries", "keep_going", "max_failed_job_count"})
#: Options that an operation with tasks does not accept. Most of them are set for each task instead.
_OF_ONE_KIND: Final = frozenset({COMMAND, "jobs", "cpu", "gpu", "memory", "each_line"})
#: Fields of the operation spec that are amounts of resources.
_AMOUNTS: Final = (
    "resources",
    "resource_limits",
    "non_preemptible_resource_usage_threshold",
    "resource_limits_overcommit_tolerance",
)


class OperationFile:
    """A file that describes an operation. Every method raises `UnusableFile` with all problems that it finds."""

    def __init__(self, path: str) -> None:
        self.problems = Problems("standard input" if path == STDIN else path)
        self._root = parse(read(path, self.problems), self.problems, "a map with the options of `headrace run`")
        #: Keys of the file whose values are used, by the option or argument that gets the value.
        self._used: dict[str, str] = {}

    def fill(self, arguments: ArgumentCollection) -> None:
        """Give every argument that is not on the command line its value in the file.

        `--env` gets the variables of the file and those of the command line.
        """
        known = {key: argument for argument in arguments if (key := _key_of(argument))}
        for key, value in self._root.items():
            argument = known.get(key.replace("-", "_"))
            if key in (_FIELDS, task_entries.KEY):
                continue
            if argument is None:
                valid = [*known, _FIELDS, task_entries.KEY]
                self.problems.say(key, "unknown key", hint(key, valid, elsewhere=task_entries.OF_YTSAURUS), key)
                continue
            words = self._words(key, value, argument)
            if argument.tokens and key != _ENV:
                continue
            self._used[argument.name if argument.name.startswith("-") else COMMAND] = key
            place = f"{self.problems.file}:{self.problems.line_of(key)}: {key}"
            given = [token.evolve(index=len(words) + index) for index, token in enumerate(argument.tokens)]
            # `Argument.append` is not used: it compares each token with all tokens before it, which takes half a minute for thousands of
            # words.
            argument.tokens = [
                Token(keyword=place, value=word, index=index) for index, word in enumerate(words)
            ] + given
        for key, argument in known.items() if task_entries.KEY in self._root else ():
            if key in _OF_ONE_KIND and argument.tokens:
                self.problems.say(task_entries.KEY, f"cannot be combined with `{key}`: each task has its own {key}", "")
        self.problems.refuse()

    def tasks(self) -> list[Task]:
        """Return the tasks of the operation; empty if all its jobs are of one kind."""
        found = (
            task_entries.tasks_in(self._root[task_entries.KEY], self.problems) if task_entries.KEY in self._root else []
        )
        self.problems.refuse()
        return found

    def completed(self, spec: OperationSpec) -> OperationSpec:
        """Return the spec with the values of `fields`, after checking its tasks and its rule for more memory on retries."""
        fields = self._fields()
        known = [name for name in spec.__struct_fields__ if name not in _NOT_KEPT]
        plain, done = msgspec.to_builtins(spec), spec
        for name, value in fields.items():
            place = f"{_FIELDS}.{name}"
            if name not in known:
                self.problems.say(place, "unknown key", hint(name, known), name)
                continue
            try:
                given = _amounts(value, getattr(spec, name), place) if name in _AMOUNTS else value
                whole = msgspec.convert({**plain, name: given}, OperationSpec)
            except BadInput as error:
                self.problems.add(error)
            except msgspec.ValidationError as error:
                self.problems.say(place, f"{shown(value)} cannot be used", _expected(error), shown(value))
            else:
                done = msgspec.structs.replace(done, **{name: getattr(whole, name)})
        self.problems.refuse()
        with self.named_keys():
            if done.tasks:
                check_tasks(done)
            check_memory_on_oom(done)
        return done

    def names_tree(self) -> bool:
        """True if `fields` names the tree in which the operation runs."""
        return "tree" in self._fields()

    @contextmanager
    def named_keys(self) -> Iterator[None]:
        """In errors of the block, name a wrong value as the user gave it: by its key in this file, else by the option of `run`.

        For a value of this file, a `BadInput` becomes an `UnusableFile` with line and key, and a `Refused` of a service gets file, line
        and key as its place.
        """
        try:
            yield
        except BadInput as error:
            named = error.renamed(self._given_as)
            if not self._key_at(error.place):
                raise named from None
            self.problems.add(named)
            raise self.problems.unusable() from None
        except Refused as refused:
            if not isinstance(refused.refusal, BadRequest):
                raise
            named_refusal = refused.refusal.renamed(self._given_as)
            if key := self._key_at(refused.refusal.place):
                named_refusal = named_refusal.at(f"{self.problems.file}:{self.problems.line_of(key)}: {key}")
            raise Refused(named_refusal) from None

    def _given_as(self, place: str) -> str:
        """Return the key that sets the value named by `place`, or the option of `run` if this file does not set the value."""
        return self._key_at(place) or option_of(place)

    def _key_at(self, place: str) -> str:
        """Return the key, with its path, that sets the value named by `place`; empty if this file does not set the value."""
        path = self._named_task(place.removeprefix("spec."))
        first = path.partition(".")[0]
        if first == task_entries.KEY in self._root:
            return path
        # Admission names a time limit as its option does, even if the file sets the field in milliseconds, whose name ends in `_ms`.
        for field in (first, f"{first}_ms"):
            if field in self._fields():
                return f"{_FIELDS}.{field}{path.removeprefix(first)}"
        # `option_of` may return more words after the option, such as `--pool-tree gpu: weight`.
        return self._used.get(option_of(place).partition(" ")[0], "")

    def _named_task(self, field: str) -> str:
        """Return the path of a field, such as `tasks.0.argv`, with the name of the task in place of the task's number."""
        parts, names = field.split("."), list(self._root.get(task_entries.KEY) or ())
        if parts[0] == task_entries.KEY and parts[1:] and int(parts[1]) < len(names):
            parts[1] = names[int(parts[1])]
        return ".".join(parts)

    def _fields(self) -> dict[str, Any]:
        fields = self._root.get(_FIELDS, Map(0))
        if isinstance(fields, Map):
            return fields
        self.problems.say(_FIELDS, f"{shown(fields)} cannot be used", "a map of fields of the spec", shown(fields))
        raise self.problems.unusable()

    def _words(self, key: str, value: object, argument: Argument) -> list[str]:
        """Return a value of the file as words of the command line."""
        many = argument.token_count()[1]
        match value:
            case Listing() if many and all(text is not None for text in value.texts):
                return [text or "" for text in value.texts]
            case Map() if key == _ENV:
                for name in value.keys() - value.texts.keys():
                    self.problems.say(
                        f"{key}.{name}", f"{shown(value[name])} cannot be used", "a text, which may be ''"
                    )
                return [f"{name}={text}" for name, text in value.texts.items()]
            case Map() | Listing() | None:
                expected = "a value, or a list of values" if many else "one value"
                expected = "a map of texts by name, or a list such as [NAME=VALUE, NAME]" if key == _ENV else expected
                self.problems.say(key, f"{shown(value)} cannot be used", expected, shown(value))
                return []
        return [self._root.texts[key]]


def _key_of(argument: Argument) -> str:
    """Return the key under which a file sets an argument; empty if a file cannot set the argument."""
    if argument.field_info.name == COMMAND:
        return COMMAND
    named = argument.name.startswith("--") and argument.name not in ("--spec", "--help", "--version")
    return argument.name.removeprefix("--").replace("-", "_") if named and argument.parse else ""


def _expected(error: msgspec.ValidationError) -> str:
    """Return what msgspec accepts, from its message such as "Expected `int`, got `str` - at `$.type`"."""
    words = str(error).partition(" - at ")[0].partition(", got")[0]
    return words.removeprefix("Expected ").replace("`", "")


def _amounts(value: object, others: Resources | PartialResources, place: str) -> list[int | None]:
    """Parse the amounts in `value`, and return them in the order of resources. Raises `BadInput`.

    A resource that `value` does not name gets its amount in `others`.
    """
    if not isinstance(value, Map) or len(value.texts) != len(value):
        raise BadInput(place, shown(value), "a map of amounts by resource")
    for name in value:
        if name not in RESOURCE_NAMES:
            raise BadInput(f"{place}.{name}", value[name], hint(name, RESOURCE_NAMES))
    return [
        parse_amount(name, value.texts[name], place=f"{place}.{name}") if name in value else other
        for name, other in zip(RESOURCE_NAMES, others.as_tuple(), strict=True)
    ]


def as_file(spec: OperationSpec) -> dict[str, Any]:
    """Return the content of a file from which `run --spec` makes the same spec, except for the trace.

    The file always names the tree and the working directory. Otherwise `run` would take the tree of its login, and the folder in which
    it is started.
    """
    options: dict[str, Any] = {}
    written: set[str] = set(_NOT_KEPT)
    for names, part in (*_jobs(spec), *_failed_jobs(spec), *_shares(spec), *_ends(spec)):
        written.update(names)
        options |= {key: value for key, value in part.items() if value not in (None, "", [], {})}
    rest = {}
    for field in msgspec.structs.fields(spec):
        value = getattr(spec, field.name)
        if field.name not in written and (field.name in _CHOSEN_BY_RUN or value not in (field.default, {}, [])):
            rest[field.name] = _amount_words(value) if field.name in _AMOUNTS else msgspec.to_builtins(value)
    return options | ({_FIELDS: rest} if rest else {})


#: Names of fields of the operation spec, and the options that express exactly the values of these fields. An option whose value is
#: empty is not written.
_Written = Iterator[tuple[tuple[str, ...], dict[str, Any]]]


def _jobs(spec: OperationSpec) -> _Written:
    if spec.tasks:
        yield (
            (task_entries.KEY, "argv", "job_count", "resources"),
            {task_entries.KEY: task_entries.as_entries(spec.tasks)},
        )
    else:
        yield from _jobs_of_one_kind(spec)
    for name in ("title", "pool", "indexes", "output", "error", "stdin", "image"):
        yield (name,), {name: getattr(spec, name)}
    if all(name and "=" not in name and not any(map(str.isspace, name)) for name in spec.environment):
        # Variables are written as a list if a name is `<<`: the parser of files refuses this key, even in quotes.
        listed = [f"{name}={value}" for name, value in spec.environment.items()]
        yield ("environment",), {_ENV: listed if "<<" in spec.environment else spec.environment}
    if spec.working_directory and os.path.abspath(spec.working_directory) == spec.working_directory:
        yield ("working_directory",), {"cwd": spec.working_directory}
    yield ("log_cap_bytes",), {"log_cap": exact_amount("memory", spec.log_cap_bytes) if spec.log_cap_bytes else None}
    yield ("scheduling_tag_filter",), {"node_filter": spec.scheduling_tag_filter}


def _jobs_of_one_kind(spec: OperationSpec) -> _Written:
    yield ("argv",), {COMMAND: spec.argv}
    yield ("job_count",), {"jobs": spec.job_count}
    each = spec.resources
    by_options = {"cpu": each.cpu} | {name: getattr(each, name) for name in ("gpu", "memory") if getattr(each, name)}
    one_slot = each.user_slots == 1 and not each.network
    yield ("resources",) if one_slot else (), {name: exact_amount(name, most) for name, most in by_options.items()}


def _failed_jobs(spec: OperationSpec) -> _Written:
    most = {"max_failed_job_count": spec.max_failed_job_count}
    if not spec.tries and not spec.keep_going:
        yield ("tries", "keep_going", *most), most
    elif spec.tries and not (spec.keep_going and spec.has_gang):
        rule = {"tries": spec.tries, "keep_going": spec.keep_going}
        yield (*rule, *most), rule | (most if spec.max_failed_job_count != LARGEST_JOB_COUNT else {})
    if spec.retry_backoff_ms != RETRY_BACKOFF_MS:
        yield (), {"retry_backoff": exact_duration(spec.retry_backoff_ms)}
    if spec.longest_retry_backoff_ms != LONGEST_RETRY_BACKOFF_MS:
        yield (), {"longest_retry_backoff": exact_duration(spec.longest_retry_backoff_ms)}
    yield ("retry_backoff_ms", "longest_retry_backoff_ms"), {}
    yield (
        ("on_lost_node",),
        {"on_lost_node": None if spec.on_lost_node is OnLostNode.REQUEUE else spec.on_lost_node.value},
    )
    if not (spec.retry_on and spec.no_retry_on):
        yield ("retry_on", "no_retry_on"), {"retry_on": spec.retry_on, "no_retry_on": spec.no_retry_on}
    yield ("memory_on_oom",), {"memory_on_oom": spec.memory_on_oom}
    yield ("suspend_on_failure",), {"suspend_on_failure": spec.suspend_on_failure or None}
    for name in ("time_limit", "operation_time_limit"):
        limit_ms = getattr(spec, f"{name}_ms")
        yield (f"{name}_ms",), {name: None if limit_ms is None else exact_duration(limit_ms)}


def _shares(spec: OperationSpec) -> _Written:
    yield ("weight",), {"weight": None if spec.weight == 1 else spec.weight}
    for name, key in (("is_gang", "gang"), ("first_job_is_master", "first_job_is_master")):
        yield (name,), {key: getattr(spec, name) or None}
    most = spec.resource_limits.named()
    keys = {"user_slots": "max_running", "cpu": "max_cpu", "gpu": "max_gpu", "memory": "max_memory"}
    by_options = {key: exact_amount(name, most[name]) for name, key in keys.items() if most.get(name)}
    yield ("resource_limits",) if len(by_options) == len(most) else (), by_options
    trees, in_tree = spec.pool_trees, spec.scheduling_options_per_pool_tree
    if set(in_tree) <= set(trees) and len(set(trees)) == len(trees) and PerTree() not in in_tree.values():
        words = [_pool_tree_words(tree, in_tree.get(tree, PerTree())) for tree in trees]
        yield ("pool_trees", "scheduling_options_per_pool_tree"), {"pool_tree": words}


def _pool_tree_words(tree: TreeName, said: PerTree) -> str:
    weight = "" if said.weight is None else f"weight={said.weight!r}"
    settings = ",".join(filter(None, (f"pool={said.pool}" if said.pool else "", weight)))
    return f"{tree}:{settings}" if settings else tree


def _ends(spec: OperationSpec) -> _Written:
    timeouts = ("interruption", "allocation_preemption", "allocation_graceful_preemption")
    names = tuple(f"{name}_timeout_ms" for name in timeouts)
    if len({getattr(spec, name) for name in names}) == 1:
        yield names, {"interruption_timeout": exact_duration(spec.interruption_timeout_ms)}
    yield ("interruptible",), {"interruptible": spec.interruptible or None}
    sent = spec.interrupt_signal
    yield ("interrupt_signal",), {"interrupt_signal": None if sent is InterruptSignal.SIGTERM else sent.value}
    mode = spec.preemption_mode
    yield ("preemption_mode",), {"preemption_mode": None if mode is PreemptionMode.NORMAL else mode.value}
    yield ("require_specified_pools_existence",), {"existing_pool": spec.require_specified_pools_existence or None}
    yield ("after",), {"after": [f"{each.operation}:{each.end}" for each in spec.after]}
    yield ("after_each",), {"after_each": spec.after_each}


def _amount_words(amounts: Resources | PartialResources) -> dict[str, str]:
    """Return amounts by resource, as people write them. Amounts that are not named are left out.

    The size of a job names all amounts. Of these, return only the amounts that no option of `run` sets.
    """
    if isinstance(amounts, Resources):
        return {"user_slots": str(amounts.user_slots), "network": str(amounts.network)}
    return {name: exact_amount(name, amount) for name, amount in amounts.named().items()}
