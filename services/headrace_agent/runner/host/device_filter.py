"""A device filter for a cgroup: it keeps the processes of the cgroup from opening certain character devices.

cgroup v2 has no control file for this. Instead, the kernel asks a BPF program each time a device file is opened. The program only compares
numbers, so it is assembled here without a compiler. Only root can load and attach it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

#: Number of the system call bpf(2); Python has no function for it.
_SYSCALLS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
_PROG_LOAD: Final = 5
_PROG_ATTACH: Final = 8
_TYPE_CGROUP_DEVICE: Final = 15
_ATTACH_CGROUP_DEVICE: Final = 6
#: Flag for attaching the program: the programs of the cgroups above, such as those that systemd attached, stay in force.
_ALLOW_MULTI: Final = 2
_CHARACTER_DEVICE: Final = 2
_ATTRIBUTES_BYTES: Final = 128
_LICENSE: Final = b"Apache-2.0"

_LOAD_WORD: Final = 0x61
_AND: Final = 0x54
_MOVE: Final = 0xB7
_JUMP_IF_NOT_EQUAL: Final = 0x55
_EXIT: Final = 0x95


def why_not_filtered() -> str:
    """Return why this process cannot load device filters, or an empty string if it can."""
    try:
        os.close(_load(_program([])))
    except OSError as error:
        return f"a device filter cannot be loaded: {error.strerror}"
    return ""


def close_devices(cgroup: str, files: Iterable[str]) -> None:
    """Keep all processes of the cgroup (a folder) from opening these character devices. Files that do not exist are skipped.

    The filter stays until the cgroup is removed. Raises OSError.
    """
    numbers = set()
    for file in files:
        with suppress(FileNotFoundError):
            found = os.stat(file)
            if stat.S_ISCHR(found.st_mode):
                numbers.add((os.major(found.st_rdev), os.minor(found.st_rdev)))
    if not numbers:
        return
    program_fd = _load(_program(sorted(numbers)))
    try:
        cgroup_fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _bpf(_PROG_ATTACH, struct.pack("=IIII", cgroup_fd, program_fd, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI), cgroup)
        finally:
            os.close(cgroup_fd)
    finally:
        os.close(program_fd)


def _program(numbers: list[tuple[int, int]]) -> bytes:
    """Return a program that refuses the character devices with these (major, minor) numbers and allows all others.

    Register 1 points to three words: the type of the device in the low 16 bits, its major and its minor number.
    """
    code = [_step(_LOAD_WORD, to=2, source=1), _step(_AND, to=2, value=0xFFFF)]
    code += [_step(_LOAD_WORD, to=3, source=1, offset=4), _step(_LOAD_WORD, to=4, source=1, offset=8)]
    code += [_step(_JUMP_IF_NOT_EQUAL, to=2, value=_CHARACTER_DEVICE, offset=4 * len(numbers))]
    for major, minor in numbers:
        code += [_step(_JUMP_IF_NOT_EQUAL, to=3, value=major, offset=3)]
        code += [_step(_JUMP_IF_NOT_EQUAL, to=4, value=minor, offset=2)]
        code += [_step(_MOVE, value=0), _step(_EXIT)]
    return b"".join([*code, _step(_MOVE, value=1), _step(_EXIT)])


def _step(operation: int, *, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", operation, source << 4 | to, offset, value)


def _load(program: bytes) -> int:
    """Return the descriptor of the loaded program. Raises OSError."""
    code, license_text = ctypes.create_string_buffer(program), ctypes.create_string_buffer(_LICENSE)
    places = ctypes.addressof(code), ctypes.addressof(license_text)
    return _bpf(_PROG_LOAD, struct.pack("=IIQQ", _TYPE_CGROUP_DEVICE, len(program) // 8, *places), "bpf")


def _bpf(command: int, attributes: bytes, about: str) -> int:
    number = _SYSCALLS.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), about)
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, command, buffer, _ATTRIBUTES_BYTES))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), about)
    return result
