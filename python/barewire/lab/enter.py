# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs one command inside a host of a lab, on the host's cores. Started as a script, so that it stays small.

Usage: enter.py PID START_TICKS USER CPUS [NAME=VALUE…] -- COMMAND…, USER being 1 if the lab has a user namespace of its
own. The NAME=VALUEs are added to the command's environment.

    this process ═══ socket ═══ supervisor ── command        the two on the right are in the lab's process namespace

A process cannot change its own process namespace, so the command must be a child. nsenter(1) forks too, but does not
pass signals on, and takes a process by its number alone. Here whoever holds this process holds the command: signals are
passed on, its stop and its end (code or signal) become this process's own, and SIGKILL here is SIGKILL there.

The supervisor's parent is process 1 of the lab. Were the command a child of this process, and this one killed, then
process 1 of the machine would have to reap it before the lab can end; in many a container it does so late or never.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER = 0x0002_0000, 0x0400_0000, 0x1000_0000
CLONE_NEWPID, CLONE_NEWNET = 0x2000_0000, 0x4000_0000
PR_SET_PDEATHSIG = 1
SI_KERNEL = 0x80
EXIT_GONE, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127

_PASSED_ON = {
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
_STATUS = struct.Struct("i")  # what waitpid returned; the other way, one byte is a signal's number


def main(arguments: list[str]) -> NoReturn:
    """Enter, start, and stand for the command until its end."""
    pid, start_ticks, has_user, cpus, added, command = _parse(arguments)
    os.environ.update(added)
    waited_for = _PASSED_ON | {signal.SIGIO}
    original_mask: set[int] = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        _enter(pid, start_ticks, has_user)
    except OSError as error:
        _complain(f"the host is gone or cannot be entered: {error}", EXIT_GONE)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            ours.close()
            _supervise(theirs, command, cpus, original_mask)
        os._exit(0)  # makes the supervisor an orphan of the lab's process 1
    os.waitpid(between, 0)
    _keep_only(ours)
    ours.setblocking(False)
    fcntl.fcntl(ours, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | os.O_ASYNC)  # SIGIO for every status
    while True:
        _follow(ours)
        information = signal.sigwaitinfo(waited_for)
        # What the terminal sends (SI_KERNEL) has reached the command already: it is in the same process group.
        if information.si_signo != signal.SIGIO and information.si_code != SI_KERNEL:
            with contextlib.suppress(OSError):
                ours.send(bytes([information.si_signo]))


def _supervise(link: socket.socket, command: list[str], cpus: set[int], mask: set[int]) -> NoReturn:
    """Start the command, pass signals to it and its status back; end it when the other end of `link` is gone."""
    # A handler in Python would run after a blocking call that a signal came just before: a byte in a pipe is not late.
    news, told = os.pipe()
    os.set_blocking(news, False)
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    parent_read, parent_write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        os.close(parent_write)
        _become(command, cpus, mask, parent_read)
    _keep_only(link, parent_write, news, told)
    while True:
        ready = select.select([link.fileno(), news], [], [])[0]
        if news in ready:
            os.read(news, select.PIPE_BUF)
            _report(link, child)
        if link.fileno() in ready:
            number = link.recv(1)
            if not number:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                os._exit(0)
            os.kill(child, number[0])


def _report(link: socket.socket, child: int) -> None:
    while True:
        ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if ended == 0:
            return
        with contextlib.suppress(OSError):
            link.send(_STATUS.pack(status))
        if not os.WIFSTOPPED(status):
            os._exit(0)


def _keep_only(*kept: socket.socket | int) -> None:
    """Close everything else: whoever reads the command's output or writes its input must see it close them."""
    for descriptor in (0, 1, 2):
        os.dup2(_null(), descriptor)
    first = 3
    for number in sorted(item if isinstance(item, int) else item.fileno() for item in kept):
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


def _enter(pid: int, start_ticks: int, has_user: bool) -> None:
    directory = Path.cwd()
    handle = os.pidfd_open(pid)
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    if int(stat[stat.rindex(")") + 2 :].split()[19]) != start_ticks:
        raise ProcessLookupError("its process has ended")
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWNET | (CLONE_NEWUSER if has_user else 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(handle, flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.close(handle)
    # A new mount namespace starts at its root.
    with contextlib.suppress(OSError):
        os.chdir(directory)


def _become(command: list[str], cpus: set[int], mask: set[int], parent_read: int) -> NoReturn:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The supervisor may have died before the line above; then its end of the pipe is closed.
    if select.select([parent_read], [], [], 0)[0]:
        os._exit(EXIT_GONE)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        _complain(f"cores {sorted(cpus)} of this host are not available to this process: {error}", EXIT_GONE)
    # Python ignores the first two; a program expects the default.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        _complain(f"no such command: {command[0]}", EXIT_NOT_FOUND)
    except OSError as error:
        _complain(f"{command[0]}: {error.strerror}", EXIT_NOT_EXECUTABLE)


def _follow(link: socket.socket) -> None:
    """Do as the command did: stop, end with its code, or die of its signal. Returns when there is no more news."""
    while True:
        try:
            news = link.recv(_STATUS.size)
        except BlockingIOError:
            return
        except ConnectionError:
            news = b""
        if not news:
            _die_of(signal.SIGKILL)  # the supervisor was killed, so the lab ended
        status = _STATUS.unpack(news)[0]
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
        elif os.WIFEXITED(status):
            os._exit(os.WEXITSTATUS(status))
        else:
            _die_of(os.WTERMSIG(status))


def _die_of(number: int) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core worth keeping is the command's
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _complain(message: str, code: int) -> NoReturn:
    os.write(2, f"barewire: {message}\n".encode())
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
