# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the values of a test are, and what becomes of those that several pairs, processes or ranks gave at once."""

from collections.abc import Sequence
from typing import Literal

from barewire.results.run import TIME_UNITS

Over = Literal["each", "total", "slowest"]

# Times from one message's arrival to the next one's.
_INTERVALS = {"arrival_interval"}


def converted(
    test: str, quantity: str, unit: str, message_bytes: int, values: Sequence[float]
) -> tuple[list[float], str]:
    """Values of a record of the C suite in the unit in which people compare them, and that unit."""
    if unit == "ns" and quantity in _INTERVALS:
        return [message_bytes * 8e3 / ns if ns > 0 else 0.0 for ns in values], "Mbit/s"
    if unit == "ns":
        return [ns / 1e3 for ns in values], "us"
    return list(values), unit


def over_all(test: str, quantity: str, unit: str) -> Over:
    """How the values of one block become one: each stays one, their sum counts, or the slowest alone."""
    return "each" if unit in TIME_UNITS else "total"
