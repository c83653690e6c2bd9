# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The order and the limit of the controller's timers."""

from barewire.sdn.controller.outbox import FIRST_S, Outbox


def test_long_work_is_spread_over_turns_and_delays_nothing_that_is_urgent() -> None:
    outbox = Outbox()
    done: list[str] = []
    for number in range(3):
        outbox.at(1.0 + number, lambda _now, name=f"slice {number}": done.append(name))
        outbox.at(0.0, lambda _now, name=f"urgent {number}": done.append(name))
    outbox.at(9.0, lambda _now: done.append("later"))

    outbox.due(5.0, lambda: False)
    assert done == ["urgent 0", "urgent 1", "urgent 2", "slice 0"]
    assert outbox.next_s() == 2.0, "the rest is due at once"
    outbox.due(5.0, lambda: False)
    outbox.due(5.0, lambda: True)
    assert done[4:] == ["slice 1", "slice 2"]
    assert outbox.next_s() == 9.0


def test_what_comes_first_goes_before_older_work_and_what_it_begins_is_sent_in_the_same_turn() -> None:
    outbox = Outbox()
    done: list[str] = []

    def first(_now: float) -> None:
        done.append("first")
        outbox.at(0.0, lambda _now: done.append("begun"))

    outbox.at(1.0, lambda _now: done.append("older"))
    outbox.at(FIRST_S, first)
    outbox.due(5.0, lambda: False)
    assert done == ["first", "begun"]
    outbox.due(5.0, lambda: False)
    assert done[2:] == ["older"]
