# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Deferred interrupts: none is lost, none interrupts the held block, whichever thread receives the signal."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from barewire.interrupts import interrupts_held


@pytest.fixture(autouse=True)
def _as_the_command_line_has_it() -> Iterator[None]:
    """These signals interrupt, also where the tests run in the background of a shell, which ignores SIGINT there."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_is_deferred_until_the_end_of_the_block(number):
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        os.kill(os.getpid(), number)
        done.append("held")
    assert done == ["held"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_received_by_another_thread_is_deferred_too():
    done = []
    thread = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        thread.start()
        thread.join()
        done.append("held")
    assert done == ["held"]


def test_an_interrupt_is_delivered_in_a_released_block_and_only_once():
    done = []
    with interrupts_held() as hold:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), hold.released():
            done.append("never")
        done.append("held again")
        with hold.released():
            done.append("released")
        with pytest.raises(KeyboardInterrupt), hold.released():
            os.kill(os.getpid(), signal.SIGINT)
        done.append("held still")
    assert done == ["held again", "released", "held still"]


def test_a_second_interrupt_does_not_interrupt_the_held_block():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held() as hold:
        with pytest.raises(KeyboardInterrupt), hold.released():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("on the way out")
        done.append("held")
    assert done == ["on the way out", "held"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_handlers_change_leaves_no_handler_behind(monkeypatch, number):
    real, raced = signal.signal, []

    def racing(changed, handler):
        before = real(changed, handler)
        if changed == number and handler is signal.default_int_handler and not raced:
            raced.append(number)
            os.kill(os.getpid(), number)
        return before

    with pytest.raises(KeyboardInterrupt), interrupts_held():
        monkeypatch.setattr(signal, "signal", racing)
    monkeypatch.undo()
    assert raced and {signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)} == {signal.default_int_handler}


def test_a_nested_block_forwards_the_interrupt():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        with interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
        done.append("after the inner one")
    assert done == ["after the inner one"]


def test_an_exception_of_the_block_is_not_hidden():
    with pytest.raises(KeyboardInterrupt) as caught, interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("of the block")
    assert isinstance(caught.value.__context__, ValueError)


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_held() as hold:
            os.kill(os.getpid(), signal.SIGINT)
            with hold.released():
                assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_nothing_is_deferred_in_other_threads():
    seen = []

    def body() -> None:
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
