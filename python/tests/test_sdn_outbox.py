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

    outbox.due(5.0, lambda _: False)
    assert done == ["urgent 0", "urgent 1", "urgent 2", "slice 0"]
    assert outbox.next_s() == 2.0, "the rest is due at once"
    outbox.due(5.0, lambda _: False)
    outbox.due(5.0, lambda _: True)
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
    outbox.due(5.0, lambda _: False)
    assert done == ["first", "begun"]
    outbox.due(5.0, lambda _: False)
    assert done[2:] == ["older"]


def test_only_urgent_timers_use_the_time_that_is_left_for_them() -> None:
    outbox = Outbox()
    done: list[str] = []
    for name, when_s in (("first", FIRST_S), ("second", FIRST_S), ("statistics", 1.0), ("age", 2.0)):
        outbox.at(when_s, lambda _now, name=name: done.append(name))
    outbox.due(5.0, lambda is_urgent: is_urgent)
    assert done == ["first", "second", "statistics"]
