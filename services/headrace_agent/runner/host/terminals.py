"""The terminals and the input pipes of processes on the host."""

from __future__ import annotations

import fcntl
import os
import struct
import termios


class LinuxTerminals:
    """Makes terminals, and pipes for the input of processes, by system calls."""

    def input_pipe(self) -> tuple[int, int]:
        """Return the two ends of a new pipe: the writing end, which never blocks, and the reading end."""
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(ours, False)
        return ours, theirs

    def open(self) -> tuple[int, int, str]:
        """Make a terminal. Return this process's end of it, which never blocks, then the other end, and the path of the other end.
        Raises OSError if the host allows no further terminal.
        """
        ours, theirs = os.openpty()
        os.set_blocking(ours, False)
        return ours, theirs, os.ttyname(theirs)

    def copy(self, fd: int) -> int:
        """Return another descriptor of the same file."""
        return os.dup(fd)

    def resize(self, fd: int, rows: int, columns: int) -> None:
        """Set the size of a terminal. If the size has changed, the foreground processes of the terminal get SIGWINCH."""
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
