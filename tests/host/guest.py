"""A virtual host under qemu with a systemd and a cgroup v2 of its own, which people enter by ssh."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.nats_server import free_port

#: Each instruction of the host is emulated: hardware for it is on few machines that test.
PATIENCE_S: Final = 300
#: Name of this machine on the host, which reaches only the loopback interface of it.
OUTSIDE: Final = "10.0.2.2"


class Guest:
    """The host of the page on hosts. `console` has what it says of itself."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._port = free_port()
        self.console = folder / "console"
        self._key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self._key], check=True)
        subprocess.run([Path(__file__).with_name("image"), folder, f"{self._key}.pub"], check=True)
        self._process = self._boot()

    def until_up(self) -> None:
        """Waits until all that starts with the host has started."""
        self.until(self._is_up)

    def run(self, command: str, *, typed: str = "", status: int | None = 0) -> str:
        """What a command says that root types there, on both streams."""
        done = self._ssh(command, typed)
        assert status in (None, done.returncode), f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def until(self, is_so: Callable[[], object]) -> None:
        """Looks again and again at what happens there."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert self._process.poll() is None, self.console.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, self.console.read_text(errors="replace")[-2000:]
            time.sleep(1)

    def main_pid(self, unit: str) -> str:
        """The process of a unit, 0 where there is none."""
        return self.run(f"systemctl show --property=MainPID --value {unit}").strip()

    def sleeping(self, account: str) -> list[str]:
        """The processes of an account that sleep."""
        return self.run(f"pgrep -u {account} sleep || true").split()

    def boot_again(self) -> None:
        """Has the host shut down and start again, as `reboot` does."""
        before = self._boot_id()
        self.run("systemctl reboot", status=None)
        self.until(lambda: self._boot_id() not in ("", before) and self._is_up())

    def lose_power(self) -> None:
        """Ends the host without a word to it, and starts it again."""
        self.end()
        self._process = self._boot()
        self.until_up()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _boot(self) -> subprocess.Popen[bytes]:
        command = [
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-cpu",
            "Nehalem",
            "-m",
            "2048",
            "-smp",
            "1",
            "-display",
            "none",
        ]
        command += ["-kernel", str(self._folder / "kernel"), "-initrd", str(self._folder / "initrd")]
        # On a busy machine the emulated timer may come so late that the kernel's own check takes it for dead, and panics.
        command += ["-append", "root=/dev/vda rw console=ttyS0 no_timer_check"]
        command += ["-drive", f"file={self._folder / 'disk'},format=raw,if=virtio,cache=writeback"]
        command += ["-nic", f"user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:{self._port}-:22"]
        command += ["-serial", f"file:{self.console}"]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=lambda: os.nice(10))

    def _is_up(self) -> bool:
        return self._ssh("systemctl is-system-running --wait", "").stdout.strip() in ("running", "degraded")

    def _boot_id(self) -> str:
        return self._ssh("cat /proc/sys/kernel/random/boot_id", "").stdout.strip()

    def _ssh(self, command: str, typed: str) -> subprocess.CompletedProcess[str]:
        options = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "ConnectTimeout": "10",
            "ServerAliveInterval": "10",
            "ControlMaster": "auto",
            "ControlPath": str(self._folder / "ssh"),
            "ControlPersist": "60",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return subprocess.run(
            ["ssh", "-i", self._key, "-p", str(self._port), *words, "root@127.0.0.1", command],
            input=typed,
            capture_output=True,
            text=True,
            check=False,
        )
