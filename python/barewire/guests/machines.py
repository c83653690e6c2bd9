# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two emulated machines on one cable, which see this machine's files and can change none of them.

    remote_shell.py ══ socket ══ qemu ── agent.py, eth0 ══ socket pair ══ eth0, agent.py ── qemu ══ remote_shell.py

Each has one core of its own, Debian's kernel, and the address by which the other finds it. Nothing needs root, nothing
is installed, and both end with the block or with this process.
"""

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from barewire.errors import MachineCannot, MeasurementFailed
from barewire.guests.image import Image, build
from barewire.processes import terminate

QEMU = "qemu-system-x86_64"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
INTERFACE = "eth0"
_HERE = Path(__file__).resolve().parent
INIT, _AGENT, _REMOTE_SHELL = _HERE / "init.sh", _HERE / "agent.py", _HERE / "remote_shell.py"
_MODULES = ("virtio_pci", "virtio_net", "virtio_console", "9pnet_virtio", "9p", "af_packet", "llc2")
_MEMORY_MIB = 512
# No IPv6, so that nothing but what is measured is on the cable; a panic ends qemu (-no-reboot).
_KERNEL = (
    "console=ttyS0 loglevel=4 panic=-1 ipv6.disable=1 mitigations=off random.trust_cpu=on tsc=reliable rdinit=/init"
)
# Some 10 s in an emulated processor; a machine that does much else must still get there.
_READY_TIMEOUT_S = 120.0
# init.sh makes them, empty.
_OWN_FOLDERS = ("/tmp", "/run", "/dev/shm")
_END_TIMEOUT_S = 10.0
_LINES_SHOWN = 5


def qemu_command(image: Image, program: str, processors: int, address: str = "") -> list[str]:
    """Return the command of a machine that becomes a shell's command, with single quotes only; devices may follow."""
    # Words with = and no dot before it are the environment of process 1.
    append = f'{_KERNEL} "ADDRESS={address}" "PROGRAM={program}"'
    command = [QEMU, "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", str(processors)]
    command += ["-m", str(_MEMORY_MIB), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    command += ["-kernel", str(image.kernel), "-initrd", str(image.initramfs), "-append", append]
    command += ["-fsdev", "local,id=machine,path=/,security_model=none,readonly=on,multidevs=remap"]
    return [*command, "-device", "virtio-9p-pci,fsdev=machine,mount_tag=machine"]


class EmulatedPair:
    """Two running machines.

    MachineCannot where qemu or the kernel is missing, MeasurementFailed where they do not boot.
    """

    def __init__(self, programs: Path) -> None:
        """Describe machines that find Barewire's native programs in this folder."""
        self._programs = programs
        self._stack = contextlib.ExitStack()
        self._folder = Path()
        self.kernel = ""

    def __enter__(self) -> "EmulatedPair":
        """Boot both; return when both take commands."""
        image = self._checked()
        with contextlib.ExitStack() as stack:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="barewire-emulated-"))
            self._folder = Path(name)
            cable = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            machines = []
            for number, (address, end) in enumerate(zip(ADDRESSES, cable, strict=True)):
                with end:
                    machines.append(stack.enter_context(self._running(image, number, address, end.fileno())))
            self._wait_until_ready(machines)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End both."""
        self._stack.close()

    @property
    def warning(self) -> str:
        """What a reader of a run must know; `kernel` is known once both run."""
        return (
            f"both sides are emulated machines (qemu; Linux {self.kernel}): each instruction is emulated, many times "
            "slower than this processor's, and the cable is a socket: compare ratios, not absolute times"
        )

    @property
    def remote_shell(self) -> tuple[str, ...]:
        """The words before an address and a command that run it there."""
        return (sys.executable, "-I", "-S", str(_REMOTE_SHELL), str(self._folder))

    def _checked(self) -> Image:
        for program, package in ((QEMU, "qemu-system-x86"), ("setpriv", "util-linux"), ("taskset", "util-linux")):
            if shutil.which(program) is None:
                raise MachineCannot(f"emulated machines need {program}. Fix: apt-get install {package}")
        python = Path(sys.executable).absolute()
        for file in (python, python.resolve(), _AGENT, self._programs.resolve()):
            if hidden := next((folder for folder in _OWN_FOLDERS if file.is_relative_to(folder)), None):
                raise MachineCannot(f"emulated machines have a {hidden} of their own and do not see {file}: move it")
        image = build(INIT, _MODULES)
        self.kernel = image.version
        return image

    @contextlib.contextmanager
    def _running(self, image: Image, number: int, address: str, cable: int) -> Any:
        with self._log(address).open("wb") as complaints:
            process = subprocess.Popen(
                self._command(image, number, address, cable),
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                pass_fds=[cable],
                # A signal of the terminal is for the measurement, whose end is theirs.
                process_group=0,
            )
        try:
            yield process
        finally:
            terminate(process, _END_TIMEOUT_S)

    def _command(self, image: Image, number: int, address: str, cable: int) -> list[str]:
        cores = sorted(os.sched_getaffinity(0))
        agent = shlex.join([sys.executable, "-I", "-S", str(_AGENT), str(self._programs.resolve())])
        command = ["setpriv", "--pdeathsig", "KILL", "taskset", "--cpu-list", str(cores[number % len(cores)])]
        command += qemu_command(image, f"exec {agent}", processors=1, address=address)
        command += ["-netdev", f"stream,id=wire,server=off,addr.type=fd,addr.str={cable}"]
        command += ["-device", f"virtio-net-pci,netdev=wire,mac=02:00:00:77:00:0{number + 1},romfile="]
        # A comma in a value is doubled.
        folder = str(self._folder).replace(",", ",,")
        command += ["-chardev", f"file,id=log,path={folder}/{address}.log", "-serial", "chardev:log"]
        command += ["-chardev", f"socket,id=agent,path={folder}/{address},server=on,wait=off"]
        return [*command, "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent"]

    def _log(self, address: str) -> Path:
        return self._folder / f"{address}.qemu"

    def _wait_until_ready(self, machines: "list[subprocess.Popen[bytes]]") -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        for machine, address in zip(machines, ADDRESSES, strict=True):
            while not (self._folder / address).exists():
                if machine.poll() is not None or time.monotonic() > deadline:
                    raise MeasurementFailed(f"qemu did not start: {self._complaints(address)}")
                time.sleep(0.01)
            # The command waits for the agent; if the machine ends, so does it.
            command = [*self.remote_shell, address, "true"]
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=max(1.0, deadline - time.monotonic()),
                    check=False,
                )
            except subprocess.TimeoutExpired:
                done = None
            if done is None or done.returncode != 0:
                raise MeasurementFailed(f"an emulated machine did not boot: {self._complaints(address)}")

    def _complaints(self, address: str) -> str:
        """The last lines of qemu and of the machine's kernel."""
        paths = (self._log(address), self._folder / f"{address}.log")
        texts = [path.read_text(errors="replace") for path in paths if path.exists()]
        lines = [line.strip() for line in "\n".join(texts).splitlines() if line.strip()]
        return "; ".join(lines[-_LINES_SHOWN:]) or "it says nothing"
