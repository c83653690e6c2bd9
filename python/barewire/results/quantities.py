# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the values of a test are, and what becomes of those that several pairs, processes or ranks gave at once."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

TIME_UNITS = ("us", "ns", "ms", "s")

Over = Literal["each", "total", "slowest", "mean"]
# What people compare; in any other unit a sample is beside the point, and no part of a series.
COMPARED_UNITS = (*TIME_UNITS, "Mbit/s", "messages/s", "MB/s", "%", "KiB")


class Quantity(NamedTuple):
    """Times of the C suite as people compare them: in this unit, and of all ranks this."""

    unit: Literal["us", "ms", "Mbit/s", "messages/s"] = "us"
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
    ("collective", "time"): Quantity("us", "slowest"),
    ("nonblocking", "time"): Quantity("us", "slowest"),
    ("nonblocking", "beside"): Quantity("us", "slowest"),
    ("nonblocking", "computation"): Quantity("us", "slowest"),
    ("neighbourhood", "time"): Quantity("us", "slowest"),
    ("persistent", "exchange"): Quantity("us", "slowest"),
    ("incast", "arrival_interval"): Quantity("messages/s", "total"),
    ("startup", "first_barrier"): Quantity("ms", "slowest"),
    ("startup", "init"): Quantity("ms", "slowest"),
    ("startup", "next_barrier"): Quantity("us", "slowest"),
}
_KERNELS = ("fft", "radix")
KERNEL_TOTAL = "total"
# More of it is better, though it is a time.
_HIDING = ("hidden", "opportunity")
# Beside a computation, too: each subject's is as long as its own operation, so such times do not compare.
_DETAILS = (
    *("uncomputed", "added", "hidden", "opportunity"),
    *("beside", "computation", "init", "next_barrier", "resident"),
)
# Memory, of which less is better.
_MEMORY_UNIT = "KiB"


def is_kernel(test: str) -> bool:
    """Whether this is a kernel, whose time has phases."""
    return test in _KERNELS


def has_own_sizes(test: str) -> bool:
    """Whether the size of messages follows from the variant, and is no coordinate."""
    return test == "fft"


def is_phase(test: str, quantity: str) -> bool:
    """Whether this is a part of another quantity: a phase of a kernel."""
    return is_kernel(test) and quantity != KERNEL_TOTAL


def is_detail(test: str, quantity: str) -> bool:
    """Whether this explains another quantity, which alone is compared where there is room for one."""
    return is_phase(test, quantity) or quantity in _DETAILS


def is_lower_better(quantity: str, unit: str) -> bool:
    """True for times that are spent and memory; False for rates, shares and what is hidden."""
    return unit in (*TIME_UNITS, _MEMORY_UNIT) and quantity not in _HIDING


def may_be_zero(quantity: str) -> bool:
    """Whether 0 and less are values as others: of shares, and of what may also shrink."""
    return quantity in ("hidden_share", "growth")


def converted(
    test: str, quantity: str, unit: str, message_bytes: int, values: Sequence[float]
) -> tuple[list[float], str]:
    """Values of a record of the C suite in the unit in which people compare them, and that unit."""
    if unit != "ns":
        return list(values), unit
    known = _of_ranks(test, quantity)
    match known.unit:
        case "us":
            return [ns / 1e3 for ns in values], known.unit
        case "ms":
            return [ns / 1e6 for ns in values], known.unit
        case "Mbit/s":
            return [message_bytes * 8e3 / ns if ns > 0 else 0.0 for ns in values], known.unit
        case "messages/s":
            return [1e9 / ns if ns > 0 else 0.0 for ns in values], known.unit


def over_all(test: str, quantity: str, unit: str) -> Over:
    """How the values of one block become one: each stays one, their sum counts, their mean, or the slowest alone."""
    if (test, quantity) in _OF_RANKS or test in _KERNELS:
        return _of_ranks(test, quantity).over
    return "each" if unit in TIME_UNITS else "total"


def _of_ranks(test: str, quantity: str) -> Quantity:
    if test in _KERNELS:
        # Phases of all ranks as a mean, so that they add up.
        return Quantity("ms", "slowest" if quantity == KERNEL_TOTAL else "mean")
    return _OF_RANKS.get((test, quantity), Quantity())
