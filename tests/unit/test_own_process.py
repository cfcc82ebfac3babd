"""Memory that threads of a service take."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

_COUNTS_ARENAS = """
import ctypes, os, tempfile, threading
from headrace.own_process import share_one_arena

if {is_shared}:
    share_one_arena()
together = threading.Barrier(4)

def work():
    together.wait()
    kept = [bytes(2_000) for _ in range(1_000)]
    together.wait()

threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as told:
    stream = ctypes.c_void_p(libc.fdopen(os.dup(told.fileno()), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(open(told.name).read().count("<heap nr="))
"""


def arenas(*, is_shared: bool, **environment: str) -> int:
    """The arenas of a process in which four threads took memory at the same time."""
    code = _COUNTS_ARENAS.format(is_shared=is_shared)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_threads_of_a_service_share_an_arena_unless_the_environment_says_otherwise() -> None:
    assert arenas(is_shared=False) > 1, "else this shows nothing"
    assert arenas(is_shared=True) == 1
    assert arenas(is_shared=True, MALLOC_ARENA_MAX="8") > 1
