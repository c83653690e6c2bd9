# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs one command on a host of a lab, on the host's cores. A standalone script, to keep its start short.

Usage: enter.py PID START_TICKS USER CPUS [NAME=VALUE…] -- COMMAND…. USER is 1 if the lab has its own user namespace.
NAME=VALUE pairs are added to the command's environment.

    this process ═══ socket ═══ supervisor ── command        the two on the right are in the lab's process namespace

A process cannot change its own process namespace, so the command must be a child. nsenter(1) forks as well, but does
not forward signals, and identifies a process by its number alone. Here this process represents the command: it
forwards signals, adopts the command's stop and end (code or signal), and SIGKILL kills both.

The supervisor's parent is process 1 of the lab. If the command were a child of this process, and this one were killed,
process 1 of the machine would have to reap it before the lab can end; in many containers it does so late or never.
"""

import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import sys

# Nothing of contextlib, pathlib and typing: importing them would take as long as all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER = 0x0002_0000, 0x0400_0000, 0x1000_0000
CLONE_NEWPID, CLONE_NEWNET = 0x2000_0000, 0x4000_0000
PR_SET_PDEATHSIG = 1
SI_KERNEL = 0x80
EXIT_GONE, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127

_FORWARDED = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGCONT,
    signal.SIGTSTP,
}
_STATUS = struct.Struct("i")  # waitpid's status; in the other direction a signal number is one byte
_CONTINUED = 0xFFFF  # the status that answers a SIGCONT, after any stop that it ended


def main(arguments: list[str]) -> "NoReturn":
    """Enter the host, start the command, and represent it until its end."""
    pid, start_ticks, has_user, cpus, added, command = _parse(arguments)
    os.environ.update(added)
    watched = _FORWARDED | {signal.SIGIO}
    original_mask: set[int] = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        enter_namespaces(pid, start_ticks, has_user)
    except OSError as error:
        _fail(f"the host is gone or cannot be entered: {error}", EXIT_GONE)
    local, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    intermediate = os.fork()
    if intermediate == 0:
        if os.fork() == 0:
            local.close()
            _supervise(remote, command, cpus, original_mask)
        os._exit(0)  # makes the supervisor an orphan of the lab's process 1
    os.waitpid(intermediate, 0)
    _keep_only(local)
    local.setblocking(False)
    fcntl.fcntl(local, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(local, fcntl.F_SETFL, fcntl.fcntl(local, fcntl.F_GETFL) | os.O_ASYNC)  # SIGIO for every status
    unanswered = 0
    while True:
        unanswered = _follow(local, unanswered)
        information = signal.sigwaitinfo(watched)
        # Signals of the terminal (SI_KERNEL) reach the command directly: it is in the same process group.
        if information.si_signo != signal.SIGIO and information.si_code != SI_KERNEL:
            try:
                local.send(bytes([information.si_signo]))
                unanswered += information.si_signo == signal.SIGCONT
            except OSError:
                pass  # the supervisor has ended, as `_follow` will see


def _supervise(link: socket.socket, command: list[str], cpus: set[int], mask: set[int]) -> "NoReturn":
    """Start the command, forward signals to it and its status back; kill it when the other end of `link` is closed."""
    # A Python handler would run only after a blocking call that the signal just precedes; a wake-up pipe is not late.
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    parent_read, parent_write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        os.close(parent_write)
        _become(command, cpus, mask, parent_read)
    _keep_only(link, parent_write, wake_read, wake_write)
    while True:
        ready = select.select([link.fileno(), wake_read], [], [])[0]
        if wake_read in ready:
            os.read(wake_read, select.PIPE_BUF)
            _report(link, child)
        if link.fileno() in ready:
            number = link.recv(1)
            if not number:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                os._exit(0)
            os.kill(child, number[0])
            if number[0] == signal.SIGCONT:
                _send(link, _CONTINUED)


def _report(link: socket.socket, child: int) -> None:
    while True:
        ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if ended == 0:
            return
        _send(link, status)
        if not os.WIFSTOPPED(status):
            os._exit(0)


def _send(link: socket.socket, status: int) -> None:
    try:
        link.send(_STATUS.pack(status))
    except OSError:
        pass  # nobody waits for the command any more


def _keep_only(*kept: socket.socket | int) -> None:
    """Close everything else: readers of the command's output and writers of its input must see it close them."""
    for descriptor in (0, 1, 2):
        os.dup2(_null(), descriptor)
    close_all_but(0, 1, 2, *(item if isinstance(item, int) else item.fileno() for item in kept))


def close_all_but(*kept: int) -> None:
    """Close every other descriptor."""
    first = 0
    for number in sorted(kept):
        if first < number:  # closerange(0, 0) closes everything
            os.closerange(first, number)
        first = number + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _null() -> int:
    return os.open(os.devnull, os.O_RDWR)


def _parse(arguments: list[str]) -> tuple[int, int, bool, set[int], dict[str, str], list[str]]:
    pid, start_ticks, has_user, cpus, *rest = arguments
    separator = rest.index("--")
    added = dict(pair.split("=", 1) for pair in rest[:separator])
    command = rest[separator + 1 :]
    assert command
    return int(pid), int(start_ticks), has_user == "1", {int(cpu) for cpu in cpus.split(",")}, added, command


def enter_namespaces(pid: int, start_ticks: int, has_user: bool) -> None:
    """Join the namespaces of a process of a lab, its process namespace for children; OSError if it has ended."""
    directory = os.getcwd()
    handle = os.pidfd_open(pid)
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        stat = file.read()
    if int(stat[stat.rindex(")") + 2 :].split()[19]) != start_ticks:
        raise ProcessLookupError("its process has ended")
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWNET | (CLONE_NEWUSER if has_user else 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.close(handle)
    # A new mount namespace starts at its root.
    try:
        os.chdir(directory)
    except OSError:
        pass


def _become(command: list[str], cpus: set[int], mask: set[int], parent_read: int) -> "NoReturn":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The supervisor may have died before prctl; then its end of the pipe is closed.
    if select.select([parent_read], [], [], 0)[0]:
        os._exit(EXIT_GONE)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        _fail(f"cores {sorted(cpus)} of this host are not available to this process: {error}", EXIT_GONE)
    # Python ignores the first two; a program expects the default.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        _fail(f"no such command: {command[0]}", EXIT_NOT_FOUND)
    except OSError as error:
        _fail(f"{command[0]}: {error.strerror}", EXIT_NOT_EXECUTABLE)


def _follow(link: socket.socket, unanswered: int) -> int:
    """Adopt the command's state: stop, exit with its code, or die of its signal, until no status is pending.

    Takes and returns how many SIGCONTs wait for their answer.
    """
    while True:
        try:
            data = link.recv(_STATUS.size)
        except BlockingIOError:
            return unanswered
        except ConnectionError:
            data = b""
        if not data:
            _die_of(signal.SIGKILL)  # the supervisor was killed, so the lab ended
        status = _STATUS.unpack(data)[0]
        if os.WIFCONTINUED(status):
            unanswered -= 1
        elif os.WIFSTOPPED(status):
            # Where all processes of a job are stopped and continued, this one may have been continued before it hears
            # that the command was stopped: nobody would continue it again.
            if not unanswered and signal.SIGCONT not in signal.sigpending():
                os.kill(os.getpid(), signal.SIGSTOP)
        elif os.WIFEXITED(status):
            os._exit(os.WEXITSTATUS(status))
        else:
            _die_of(os.WTERMSIG(status))


def _die_of(number: int) -> "NoReturn":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the useful core dump is the command's
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _fail(message: str, code: int) -> "NoReturn":
    os.write(2, f"barewire: {message}\n".encode())
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
