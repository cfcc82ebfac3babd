"""Read by every Python process of a soak before anything else: at an armed kill point the process ends, or freezes, by its own hand.

It stands alone in a folder that a soak puts in PYTHONPATH, beside `points`, one line a point, and `armed/`, one file for each point that
is to be hit next. The file holds the number of the signal, and whoever removes it obeys it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _hit(key: str) -> None:
    """Obeys the signal that a point is armed with, if it is."""
    path = f"{_FOLDER}/armed/{key}"
    if not os.path.exists(path):
        return
    taken = f"{_FOLDER}/hit/{key}.{os.getpid()}"
    try:
        os.rename(path, taken)
    except FileNotFoundError:
        return
    with open(taken) as file:
        number = int(file.read())
    os.kill(os.getpid(), number)


def _wrapped(function: Callable[..., Any], key: str, when: str) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wait_for(*args: Any, **given: Any) -> Any:
            if when == "before":
                _hit(key)
            answer = await function(*args, **given)
            if when == "after":
                _hit(key)
            return answer

        return wait_for

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if when == "before":
            _hit(key)
        answer = function(*args, **given)
        if when == "after":
            _hit(key)
        return answer

    return call


def _points() -> dict[str, list[tuple[str, str, str]]]:
    by_module: dict[str, list[tuple[str, str, str]]] = {}
    with open(f"{_FOLDER}/points") as file:
        for line in file:
            key, when, module, function = line.split()
            by_module.setdefault(module, []).append((key, when, function))
    return by_module


class _Wrapping(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, points: list[tuple[str, str, str]]) -> None:
        self._loader = loader
        self._points = points

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for key, when, function in self._points:
            owner_name, name = function.split(".")
            owner = getattr(module, owner_name)
            setattr(owner, name, _wrapped(getattr(owner, name), key, when))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, by_module: dict[str, list[tuple[str, str, str]]]) -> None:
        self._by_module = by_module

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._by_module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapping(spec.loader, self._by_module[name])
        return spec


if os.path.exists(f"{_FOLDER}/points"):
    sys.meta_path.insert(0, _Finder(_points()))
