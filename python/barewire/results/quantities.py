# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the values of a test are, and what becomes of those that several pairs, processes or ranks gave at once."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from barewire.results.run import TIME_UNITS

Over = Literal["each", "total", "slowest"]


class Quantity(NamedTuple):
    """Times of the C suite as people compare them: in this unit, and of all ranks this."""

    unit: Literal["us", "Mbit/s", "messages/s"] = "us"
    over: Over = "each"


# By test and by what its records call the time. A bidirectional exchange is one message for each of both ranks.
_OF_RANKS = {
    ("stream", "arrival_interval"): Quantity("Mbit/s", "total"),
    ("bidirectional", "exchange"): Quantity("Mbit/s", "total"),
    ("bandwidth", "send_interval"): Quantity("Mbit/s", "total"),
    ("rate", "send_interval"): Quantity("messages/s", "total"),
    ("exchange", "exchange"): Quantity("us", "slowest"),
    ("alltoall", "alltoall"): Quantity("us", "slowest"),
    ("halo", "halo"): Quantity("us", "slowest"),
}


def converted(
    test: str, quantity: str, unit: str, message_bytes: int, values: Sequence[float]
) -> tuple[list[float], str]:
    """Values of a record of the C suite in the unit in which people compare them, and that unit."""
    if unit != "ns":
        return list(values), unit
    known = _OF_RANKS.get((test, quantity), Quantity())
    match known.unit:
        case "us":
            return [ns / 1e3 for ns in values], known.unit
        case "Mbit/s":
            return [message_bytes * 8e3 / ns if ns > 0 else 0.0 for ns in values], known.unit
        case "messages/s":
            return [1e9 / ns if ns > 0 else 0.0 for ns in values], known.unit


def over_all(test: str, quantity: str, unit: str) -> Over:
    """How the values of one block become one: each stays one, their sum counts, or the slowest alone."""
    known = _OF_RANKS.get((test, quantity))
    if known is not None:
        return known.over
    return "each" if unit in TIME_UNITS else "total"
