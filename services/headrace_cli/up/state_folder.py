"""The state folder of `headrace up`: one `up` uses it at a time, and only its owner can read it.

It contains `lock` (flock, held while `up` or its guard runs), `credential` (for people), `endpoint.json` and `ca.pem`
(while running), `nats.conf`, `server.pem`, `server.key`, `services.toml`, `agent-<node>.toml`, and the folders
`credentials` (one for each service and node), `nats` (streams and buckets), `agents` (one folder for each node), `logs`,
`traces` and `web` (secrets and address of the web service, while running).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.client.places.endpoint import AUTHORITY_FILE, CREDENTIAL_FILE, ENDPOINT_FILE, Endpoint
from headrace.errors import BadInput, HeadraceError

_LOCK_POLL_S = 0.1
#: Seconds to wait for a guard that ends the processes of a killed `up`.
_GUARD_TIME_S = 25.0


_LOCK_WORDS = {
    errno.EEXIST: "a file is there",
    errno.ENOTDIR: "a file is there",
    errno.ELOOP: "its file `lock` is a symbolic link",
}


class InUse(HeadraceError):
    """The state folder or the port is in use or belongs to another user. Nothing was changed."""


class Unwritable(HeadraceError):
    """The state folder cannot be written."""


@contextlib.contextmanager
def naming_folder(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into `Unwritable`, which names the folder; the OSError may name no file at all."""
    try:
        yield
    except OSError as error:
        file = f" ({error.filename})" if error.filename else ""
        raise Unwritable(f"the state folder {path} cannot be written: {error.strerror}{file}") from error


class StateFolder:
    """The paths and files of one state folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.nats = path / "nats"
        self.agents = path / "agents"
        self.credentials = path / "credentials"
        self.credential = path / CREDENTIAL_FILE
        #: Certificate of the authority that signed the server's certificate.
        self.authority = path / AUTHORITY_FILE
        self.endpoint = path / ENDPOINT_FILE
        #: Folder of the web service: its secrets and its address.
        self.web = path / "web"

    def make(self) -> None:
        """Make the folders that are missing, for the owner only. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.logs, self.nats, self.agents, self.credentials):
            folder.mkdir(mode=0o700, exist_ok=True)

    def secret(self, path: Path, user: str) -> str:
        """Return a user's password from a file of credentials, or write a new random one. Raises OSError, `BadInput`."""
        with contextlib.suppress(OSError):
            try:
                known, _, password = path.read_text(encoding="utf-8").strip().partition(":")
            except UnicodeDecodeError:
                fault = (
                    "the credential in this file is damaged. Remove the file; `headrace up` then makes a new credential"
                )
                raise BadInput.because(str(path), fault) from None
            if known == user and password:
                path.chmod(0o600)
                return password
        return self.renew_secret(path, user)

    def renew_secret(self, path: Path, user: str) -> str:
        """Write a new random password of a user to a file of credentials and return it. Raises OSError."""
        password = secrets.token_urlsafe(32)
        self.write(path, f"{user}:{password}\n")
        return password

    def write(self, path: Path, text: str) -> None:
        """Replace a file as a whole. Only the owner can read it."""
        new = path.with_name(path.name + ".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)
            file.write(text)
        new.replace(path)

    def announce(self, endpoint: Endpoint) -> None:
        """Write the address of the server, so that clients find it."""
        self.write(self.endpoint, msgspec.json.encode(endpoint).decode() + "\n")

    def withdraw(self, *, whole: bool = False) -> None:
        """Remove the file with the server's address; with `whole`, also the authority's certificate, and the secrets of the web service.

        Errors of the disk are ignored.
        """
        if whole:
            shutil.rmtree(self.web, ignore_errors=True)
        for file in (self.endpoint, self.authority) if whole else (self.endpoint,):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    def log(self, name: str) -> Path:
        """Return the path of a process's log."""
        return self.logs / f"{name}.log"


@contextlib.contextmanager
def take_lock(path: Path, on_wait: str = "") -> Iterator[int]:
    """Lock the state folder for the block and yield the descriptor of the lock. Make the folder if it is missing.

    Raises `InUse` at once while an `up` runs. If only the guard of a killed `up` still runs, the function prints
    `on_wait` and waits; it raises `InUse` when the guard takes too long. Raises `BadInput` if the folder cannot be
    made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _open_lock(path)
    except OSError as error:
        why = _LOCK_WORDS.get(error.errno or 0, error.strerror)
        raise BadInput(
            "state folder", str(path), f"a folder that you own, or a path where a folder can be made ({why})"
        ) from None
    try:
        deadline = time.monotonic() + _GUARD_TIME_S
        while not _try_lock(descriptor):
            holder = _holder(descriptor)
            if holder is None or _lives(holder) or time.monotonic() >= deadline:
                who = f" by `headrace up` with process id {holder}" if holder else ""
                raise InUse(f"the state folder {path} is in use{who}; nothing was changed")
            if on_wait:
                print(on_wait, flush=True)
                on_wait = ""
            time.sleep(_LOCK_POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    """Make the folder private and open its lock. Raises OSError, and `InUse` if the folder or a file in it belongs to another user."""
    link = os.lstat(path)
    is_link = stat.S_ISLNK(link.st_mode)
    # Follow a link only if this account or root made it. In a folder such as /tmp another account could have made a link that leads to any
    # folder of this account.
    if is_link and link.st_uid not in (os.getuid(), 0):
        raise InUse(f"the state folder {path} is a symbolic link of another user; nothing was changed")
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if is_link else os.O_NOFOLLOW))
    try:
        if os.fstat(folder).st_uid != os.getuid():
            raise InUse(f"the state folder {path} belongs to another user; nothing was changed")
        # From here on no other account can add files. If another account added a file before, the folder is refused, because the file may
        # be a link that leads anywhere.
        os.fchmod(folder, 0o700)
        with os.scandir(folder) as entries:
            for entry in entries:
                # Files of root are accepted: root may do everything anyway, and `lost+found` belongs to root.
                if entry.stat(follow_symlinks=False).st_uid not in (os.getuid(), 0):
                    raise InUse(
                        f"{path / entry.name} belongs to another user: remove it, or choose another state folder"
                    )
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open("lock", flags, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def port_is_free(port: int, option: str = "--port") -> bool:
    """True if a server could listen on this port of the loopback interface now. Raises `BadInput` if this user may not use the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # The server sets this option too. With it, remains of closed connections do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            raise BadInput(
                option, port, "a port that this user may listen on, such as one above 1023, or 0 for any free one"
            ) from None
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a port of the loopback interface on which no process listens now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
