"""The layout of the production code: sizes, import circles, the contract of engines, and unused code.

A folder, module or function that may stay as it is stands in `ALLOWED` with its reason.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LONGEST_MODULE = 600
LONGEST_FUNCTION = 60
MOST_PUBLIC_METHODS = 20
MOST_MODULES_IN_A_FOLDER = 25

#: Breaks a rule for good, and why.
ALLOWED: dict[str, dict[str, str]] = {
    "big_classes": {
        "headrace_admission.engine:AdmissionEngine": "one method for each message, as every engine has",
        "headrace_allocator.engine:AllocatorEngine": "one method for each message, as every engine has",
        "headrace_allocator.facts.job_slots:JobSlots": "one method for each way of a job from place to place, and the counts",
    },
    "folders": {
        "headrace.wire": "one module for the messages of each subject, flat so that an import says the subject",
    },
    "unused": {
        f"headrace_cli.yarn.elements:_Handler.{name}": "xml.sax calls it, by a name that is given"
        for name in ("startElement", "endElement", "characters")
    }
    | {
        f"headrace.obs.otlp:_GivenIds.{name}": "OpenTelemetry's SDK calls it"
        for name in ("generate_trace_id", "generate_span_id")
    }
    | {
        f"snakemake_executor_plugin_headrace.executor:Executor.{name}": "Snakemake calls it"
        for name in ("run_job", "check_active_jobs", "cancel_jobs")
    }
    | {
        f"headrace.joblib.backend:HeadraceBackend.{name}": "joblib calls it"
        for name in ("retrieve_result_callback", "abort_everything")
    }
    | {"headrace_web.server:_Server.capture_signals": "uvicorn calls it"}
    | {f"headrace.checkpoint:{name}": "jobs of people call it" for name in ("seconds_left", "tell_progress")},
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Rule = Callable[[], Iterator[str]]
RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    """Adds a function that yields the names which break the rule that it is called after."""
    RULES[function.__name__] = function
    return function


@cache
def modules() -> dict[str, Path]:
    """All production modules by name; a package stands for its `__init__.py`."""
    found = {}
    for base in (ROOT / "shared", ROOT / "services"):
        for path in sorted(base.rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules().items()}


def imported(module: str, tree: ast.AST) -> Iterator[str]:
    """Production modules that a module imports anywhere: at its top, in a function, for types only."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports by a relative name"
            names = [
                whole if (whole := f"{node.module}.{alias.name}") in modules() else str(node.module)
                for alias in node.names
            ]
        yield from (name for name in names if name in modules() and name != module)


@rule
def circles() -> Iterator[str]:
    """The modules of an import circle, if there is one."""
    try:
        TopologicalSorter({name: set(imported(name, tree)) for name, tree in trees().items()}).prepare()
    except CycleError as error:
        yield from error.args[1]


@rule
def long_modules() -> Iterator[str]:
    for name, path in modules().items():
        if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST_MODULE:
            yield name


@rule
def long_functions() -> Iterator[str]:
    for module, tree in trees().items():
        for name, node in definitions(tree):
            if isinstance(node, Function) and (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION:
                yield f"{module}:{name}"


@rule
def big_classes() -> Iterator[str]:
    for name in classes():
        if sum(not method.startswith("_") for method in methods(name)) > MOST_PUBLIC_METHODS:
            yield name


@rule
def folders() -> Iterator[str]:
    inside: dict[str, int] = defaultdict(int)
    for name, path in modules().items():
        if path.name != "__init__.py":
            inside[name.rpartition(".")[0]] += 1
    for folder, count in inside.items():
        if count > MOST_MODULES_IN_A_FOLDER:
            yield folder


@rule
def engines() -> Iterator[str]:
    """Engines which do not keep the contract of `headrace.runtime.engine`."""
    for name in classes():
        module, _, class_name = name.partition(":")
        if not module.endswith(".engine") or not class_name.endswith("Engine") or module == "headrace.runtime.engine":
            continue
        own = methods(name)
        yield from (f"{name}.{needed}" for needed in ("checks", "check", "figures") if needed not in own)
        for method, node in own.items():
            if not method.startswith("on_"):
                continue
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            last = arguments[-1]
            takes_time = last.arg == "now" and last.annotation is not None and ast.unparse(last.annotation) == "Moment"
            outcome = node.returns is not None and ast.unparse(node.returns).startswith("Outcome[")
            if not (takes_time and outcome):
                yield f"{name}.{method}"


@rule
def unused() -> Iterator[str]:
    """Functions and methods that nothing in production names, but for commands of the command line."""
    named = set()
    for node in (node for tree in trees().values() for node in ast.walk(tree)):
        match node:
            case ast.Name(name) | ast.Attribute(attr=name):
                named.add(name)
            case ast.Constant(str(text)):  # a command that is imported when it is given: `module:function`
                named.add(text.rpartition(":")[2])
    for module, tree in trees().items():
        for name, node in definitions(tree):
            own_name = name.rpartition(".")[2]
            is_command = module.startswith("headrace_cli.") and isinstance(node, Function) and node.decorator_list
            if own_name not in named and not own_name.startswith("__") and not is_command:
                yield f"{module}:{name}"


@rule
def unsent_messages() -> Iterator[str]:
    """Messages of the wire that no production module makes."""
    made = {
        ast.unparse(node.func).partition("[")[0].rpartition(".")[2]
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    bases = {ast.unparse(base).partition("[")[0] for node in classes().values() for base in node.bases}
    for name, node in classes().items():
        is_struct = any(ast.unparse(base).startswith("msgspec.Struct") for base in node.bases)
        own_name = name.partition(":")[2]
        if name.startswith("headrace.wire.") and is_struct and own_name not in made | bases:
            yield name


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Classes and functions of a module by their dotted names; functions inside functions belong to those."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        prefix, parent = waiting.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.ClassDef | Function):
                yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                waiting.append((f"{prefix}{node.name}.", node))
            elif not isinstance(node, Function):
                waiting.append((prefix, node))


@cache
def classes() -> dict[str, ast.ClassDef]:
    return {
        f"{module}:{name}": node
        for module, tree in trees().items()
        for name, node in definitions(tree)
        if isinstance(node, ast.ClassDef)
    }


def methods(name: str) -> dict[str, Function]:
    """The methods of a class, with those that it inherits from production classes."""
    by_own_name = {each.partition(":")[2]: each for each in classes()}
    found: dict[str, Function] = {}
    for base in classes()[name].bases:
        inherited = by_own_name.get(ast.unparse(base))
        if inherited is not None and inherited != name:
            found |= methods(inherited)
    return found | {node.name: node for node in classes()[name].body if isinstance(node, Function)}


@pytest.mark.parametrize("name", RULES)
def test_the_house_keeps_its_order(name: str) -> None:
    broken, allowed = set(RULES[name]()), set(ALLOWED.get(name, {}))

    assert sorted(broken - allowed) == [], f"these break the rule {name}"
    assert sorted(allowed - broken) == [], f"these keep the rule {name} now: delete them from ALLOWED"


def test_whatever_is_allowed_belongs_to_a_rule() -> None:
    assert set(ALLOWED) <= set(RULES)


#: Words that made sentences riddles. No sentence that needs them is plain.
NEVER_RIGHT = ("nobody's", "how-manieth", "whosoever", "of whom", "lets go of", "gives way", "in whose favour")


def test_no_text_has_a_word_that_is_never_right() -> None:
    pages = [path for path in ROOT.rglob("*.md") if not {".venv", "build"} & {*path.parts}]
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in [*modules().values(), *pages]
        for word in NEVER_RIGHT
        if re.search(rf"\b{word}\b", path.read_text(encoding="utf-8"), re.IGNORECASE)
    ]

    assert found == []
