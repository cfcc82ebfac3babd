"""Terminals and inputs of processes on the real host."""

from __future__ import annotations

import fcntl
import os
import struct
import termios


class LinuxTerminals:
    """Terminals by openpty, and pipes into processes."""

    def input_pipe(self) -> tuple[int, int]:
        """Return the writing end, which never blocks, and the reading end."""
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(ours, False)
        return ours, theirs

    def open(self) -> tuple[int, int, str]:
        """Return our end of a new terminal, which never blocks, the other end, and its path. Raises OSError if the host has none left."""
        ours, theirs = os.openpty()
        os.set_blocking(ours, False)
        return ours, theirs, os.ttyname(theirs)

    def copy(self, fd: int) -> int:
        """Return another descriptor of the same file."""
        return os.dup(fd)

    def resize(self, fd: int, rows: int, columns: int) -> None:
        """Set the size of a terminal. Its processes in the foreground get SIGWINCH if the size has changed."""
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
