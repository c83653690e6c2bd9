# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs functions of this program in the namespaces of a lab's process.

They run in a fork, which has imported what another interpreter would import anew: a third of a second for what
creates a lab.

    creator ── enters the namespaces ══ first in the process namespace ── runs the function

A process cannot change its own process namespace, only its children's. The two in the middle end at once: the last one
then is a child of the lab's process 1, which reaps it. Process 1 of the machine would do so late, in many containers,
and the lab could not end before.
"""

import contextlib
import gc
import json
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from barewire.errors import BarewireError, MachineCannot, MeasurementFailed, WrongUse
from barewire.lab import enter
from barewire.lab.kernel import Process

_ERRORS = {kind.__name__: kind for kind in (MachineCannot, MeasurementFailed, WrongUse)}


def start_inside(process: Process, user_namespace: bool, work: Callable[[], None], kept: int, log: int) -> None:
    """Start `work` as a child of a lab's process 1; of the open files it has `kept`, and `log` for its output.

    Raises ProcessLookupError if the process has ended, or if it cannot be entered.
    """
    entering = os.fork()
    if entering == 0:
        _or_exit(lambda: _enter_and_fork(process, user_namespace, work, kept, log))
    if os.waitpid(entering, 0)[1] != 0:
        raise ProcessLookupError(f"process {process.pid} of the lab has ended, or cannot be entered")


def call_inside(process: Process, user_namespace: bool, work: Callable[[], None]) -> None:
    """Call `work` in a lab process's namespaces, and raise its error here, if it is one of this program's."""
    answer_read, answer_write = os.pipe()
    try:
        with Path(os.devnull).open("wb") as null:
            start_inside(process, user_namespace, lambda: _answer(work, answer_write), answer_write, null.fileno())
        os.close(answer_write)
        answer_write = -1
        with open(answer_read, "rb", closefd=False) as answer:
            document = answer.read()
    finally:
        os.close(answer_read)
        if answer_write >= 0:
            os.close(answer_write)
    if not document:
        raise MeasurementFailed(f"process {process.pid} of the lab ended during a change of the lab")
    kind, message = json.loads(document)
    if kind is not None:
        raise _ERRORS.get(kind, MeasurementFailed)(message)


def _enter_and_fork(process: Process, user_namespace: bool, work: Callable[[], None], kept: int, log: int) -> None:
    # Garbage of the creator may hold numbers of open files that are others here.
    gc.freeze()
    # A terminal's Ctrl-C goes to the creator, which ends the lab in order.
    os.setsid()
    signal.set_wakeup_fd(-1)
    for caught in signal.valid_signals():
        if callable(signal.getsignal(caught)):
            signal.signal(caught, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(source, number)
    enter.close_all_but(0, 1, 2, kept)
    enter.enter_namespaces(process.pid, process.start_ticks, user_namespace)
    first = os.fork()
    if first == 0:
        if os.fork() == 0:
            _or_exit(work)
        os._exit(0)
    os.waitpid(first, 0)


def _answer(work: Callable[[], None], answer: int) -> None:
    kind, message = None, ""
    try:
        work()
    except BarewireError as error:
        kind, message = type(error).__name__, str(error)
    except Exception as error:
        kind, message = "", f"{type(error).__name__}: {error}"
    os.write(answer, json.dumps([kind, message]).encode())


def _or_exit(work: Callable[[], None]) -> NoReturn:
    """Call `work` and end: this process is a copy of one that goes on."""
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)
