"""A command in a terminal of its own, whose screen is known as a person would see it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final

__all__ = ["LiveTerminal", "ScreenOfCells"]

_BEGUN: Final = re.compile(r"\x1b(\[[?0-9;]*)?\Z")
_PIECE: Final = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]")
_MOST_WAITED_S: Final = 30.0


class ScreenOfCells:
    """The characters that stand on a screen after what was written. Knows the few commands that are used, and refuses others."""

    def __init__(self, width: int, height: int) -> None:
        #: The first part of a command whose rest has not come.
        self._begun = ""
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._clear()

    def _clear(self) -> None:
        self._x = self._y = 0
        self._cells = [[" "] * self.width for _ in range(self.height)]

    @property
    def lines(self) -> list[str]:
        return ["".join(line).rstrip() for line in self._cells]

    def write(self, text: str) -> None:
        text = self._begun + text
        begun = _BEGUN.search(text)
        self._begun = begun[0] if begun else ""
        for found in _PIECE.finditer(text.removesuffix(self._begun)):
            private, figures, command = found[1], found[2] or "", found[3]
            if command is not None:
                self._do(private + command, [int(figure) for figure in figures.split(";") if figure])
            elif found[0] == "\r":
                self._x = 0
            elif found[0] == "\n":
                self._y += 1
            else:
                assert self._x < self.width, f"beyond the edge: {text!r}"
                self._cells[min(self._y, self.height - 1)][self._x] = found[0]
                self._x += 1

    def _do(self, command: str, figures: Sequence[int]) -> None:
        match command:
            case "H":
                self._y, self._x = (figures[0] - 1, figures[1] - 1) if figures else (0, 0)
            case "J":
                self._clear()
            case "K":
                self._cells[self._y][self._x :] = [" "] * (self.width - self._x)
            case "m" | "?l" | "?h":
                pass
            case _:
                raise AssertionError(f"no terminal knows {command} here")


class LiveTerminal:
    """Started by `with`."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], width: int, height: int) -> None:
        self._words = words
        self._environment = {**environment, "TERM": "xterm-256color"}
        self._environment.pop("COLUMNS", None)
        self.screen = ScreenOfCells(width, height)
        #: All that the command wrote.
        self.written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._pid = 0
        self._terminal = -1
        self._over = False

    def __enter__(self) -> LiveTerminal:
        ready, begin = os.pipe()
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:  # pragma: no cover
            os.read(ready, 1)
            os.execvpe(self._words[0], list(self._words), self._environment)
        self._set_size()
        os.write(begin, b".")
        os.close(ready)
        os.close(begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._over:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def resize(self, width: int, height: int) -> None:
        """Forgets what stood on the screen: the command is to draw it anew."""
        self.screen.resize(width, height)
        self._set_size()

    def until(self, is_there: Callable[[list[str]], bool]) -> list[str]:
        """The lines of the screen, once they are so."""
        while not is_there(self.screen.lines):
            if not self._read():
                raise AssertionError("it ended:\n" + "\n".join(self.screen.lines))
        return self.screen.lines

    def until_text(self, text: str) -> list[str]:
        return self.until(lambda lines: any(text in line for line in lines))

    def end(self) -> int:
        """Its exit status, once it ends by itself."""
        while self._read():
            pass
        self._over = True
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _set_size(self) -> None:
        size = struct.pack("HHHH", self.screen.height, self.screen.width, 0, 0)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    def _read(self) -> bool:
        if not select.select([self._terminal], [], [], _MOST_WAITED_S)[0]:
            raise AssertionError("nothing came:\n" + "\n".join(self.screen.lines))
        try:
            data = os.read(self._terminal, 65_536)
        except OSError:  # the last end of the terminal is closed
            return False
        text = self._decoder.decode(data)
        self.written += text
        self.screen.write(text)
        return bool(data)
