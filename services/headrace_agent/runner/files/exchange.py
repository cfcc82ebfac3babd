"""The exchange folder of a host, and the folders of jobs of accounts in it.

Only we write into the exchange folder itself, so no account can put anything in the place of what lies there. A job of an account has a
folder of its own in it, which no other account can enter.
"""

from __future__ import annotations

import os

from headrace_agent.host.own_folder import make_own_folder
from headrace_agent.runner.host.accounts import Account

_OWNER_ONLY = 0o700
#: Accounts reach their own folders, and list nothing.
_FOR_ACCOUNTS = 0o711


def open_exchange(folder: str) -> int:
    """Returns a descriptor of the exchange folder, made where it is missing and closed to others. Raises `ForeignFolder`, OSError."""
    make_own_folder(folder, _OWNER_ONLY if os.geteuid() else _FOR_ACCOUNTS)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def make_job_folder(path: str, account: Account) -> None:
    """Makes the folder of a job of an account in the exchange folder, for that account only.

    What an earlier start of the job left there is put aside. Raises OSError.
    """
    parent, _, name = path.rpartition("/")
    exchange = open_exchange(parent)
    try:
        try:
            os.mkdir(name, _OWNER_ONLY, dir_fd=exchange)
        except FileExistsError:
            os.rename(name, f"{name}.{os.urandom(4).hex()}", src_dir_fd=exchange, dst_dir_fd=exchange)
            os.mkdir(name, _OWNER_ONLY, dir_fd=exchange)
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=exchange)
        try:
            os.fchown(fd, account.uid, account.gid)
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(exchange)
