"""The exchange folder of a host, and the folders inside it: one for each job that has an account.

Only the runner and the agent write into the exchange folder itself, so no account of a job can replace the folders in it. Only the account
of a job (and root) can enter the folder of the job.
"""

from __future__ import annotations

import os

from headrace_agent.host.own_folder import make_own_folder
from headrace_agent.runner.host.accounts import Account

_OWNER_ONLY = 0o700
#: Permissions of the exchange folder if jobs have accounts: accounts reach their own folders, but cannot list the exchange
#: folder.
_FOR_ACCOUNTS = 0o711


def open_exchange(folder: str) -> int:
    """Return a descriptor of the exchange folder. The folder is made if it is missing. Other accounts cannot list it.

    Raises `ForeignFolder`, OSError.
    """
    make_own_folder(folder, _OWNER_ONLY if os.geteuid() else _FOR_ACCOUNTS)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def make_job_folder(path: str, account: Account) -> None:
    """Make the folder of one job in the exchange folder. It belongs to the job's account, and no other account can enter it.

    If an earlier start of the job left a folder with this name, that folder is renamed. Raises OSError.
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
