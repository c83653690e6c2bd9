# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Quantities of tests: their units, and how the values of several pairs, processes or ranks are combined."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

# Each unit of time in µs.
US_OF = {"us": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6}
TIME_UNITS = tuple(US_OF)

Over = Literal["each", "total", "slowest", "mean"]
# Units of results; samples in any other unit are auxiliary and not part of a series.
COMPARED_UNITS = (*TIME_UNITS, "Mbit/s", "messages/s", "MB/s", "Gflop/s", "Mupdates/s", "%", "KiB")


class Quantity(NamedTuple):
    """Unit of the C suite's times in results, and how the values of all ranks are combined."""

    unit: Literal["us", "ms", "Mbit/s", "messages/s"] = "us"
    over: Over = "each"


# By test and the records' name of the time. A bidirectional exchange is one message for each of the two ranks.
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
_KERNELS = ("fft", "krylov", "radix")
KERNEL_TOTAL = "total"
# Times of which more is better.
_HIDING = ("hidden", "opportunity")
# Also times beside a computation: it is as long as the subject's own operation, so these times are not comparable.
_DETAILS = (
    *("uncomputed", "added", "hidden", "opportunity"),
    *("beside", "computation", "init", "next_barrier", "resident"),
    # Imported: the fastest rank's time, beside the slowest's.
    *("time_min", "exchange_min"),
)
# Memory, of which less is better.
_MEMORY_UNIT = "KiB"


def is_kernel(test: str) -> bool:
    """Return whether this is a kernel, whose time has phases."""
    return test in _KERNELS


def has_own_sizes(test: str) -> bool:
    """Return whether the message size follows from variant and ranks, so that it is not a coordinate."""
    return test in ("fft", "krylov")


def is_weak(test: str, parameter: str) -> bool:
    """Return whether a kernel's problem grows with the ranks, each of which has as much as the parameter says."""
    return test == "radix" or parameter.endswith("_per_rank")


def is_phase(test: str, quantity: str) -> bool:
    """Return whether this is a part of another quantity: a phase of a kernel."""
    return is_kernel(test) and quantity != KERNEL_TOTAL


def is_detail(test: str, quantity: str) -> bool:
    """Return whether this explains another quantity, which is compared instead where only one is."""
    return is_phase(test, quantity) or quantity in _DETAILS


def is_lower_better(quantity: str, unit: str) -> bool:
    """Return True for elapsed times and memory; False for rates, shares and hidden time."""
    return unit in (*TIME_UNITS, _MEMORY_UNIT) and quantity not in _HIDING


def message_time_us(value: float, unit: str, message_bytes: int) -> float | None:
    """Return the time of a message from a time or a rate of messages; None for any other unit, and without a size."""
    if value <= 0 or not message_bytes:
        return None
    match unit:
        case "Mbit/s":
            return message_bytes * 8 / value
        case "messages/s":
            return 1e6 / value
        case _ if unit in TIME_UNITS:
            return value * US_OF[unit]
    return None


def may_be_zero(quantity: str) -> bool:
    """Return whether values of 0 and less are valid: shares, and differences."""
    return quantity in ("hidden_share", "growth")


def converted(
    test: str, quantity: str, unit: str, message_bytes: int, values: Sequence[float]
) -> tuple[list[float], str]:
    """Return the values of a record of the C suite in the unit of results, and that unit."""
    if unit != "ns":
        return list(values), unit
    target = _quantity(test, quantity)
    match target.unit:
        case "us":
            return [ns / 1e3 for ns in values], target.unit
        case "ms":
            return [ns / 1e6 for ns in values], target.unit
        case "Mbit/s":
            return [message_bytes * 8e3 / ns if ns > 0 else 0.0 for ns in values], target.unit
        case "messages/s":
            return [1e9 / ns if ns > 0 else 0.0 for ns in values], target.unit


def over_all(test: str, quantity: str, unit: str) -> Over:
    """Return how the values of one block are combined: kept separately, summed, averaged, or the slowest."""
    if (test, quantity) in _OF_RANKS or test in _KERNELS:
        return _quantity(test, quantity).over
    return "each" if unit in TIME_UNITS else "total"


def _quantity(test: str, quantity: str) -> Quantity:
    if test in _KERNELS:
        # Phases are averaged over all ranks, so that they add up.
        return Quantity("ms", "slowest" if quantity == KERNEL_TOTAL else "mean")
    return _OF_RANKS.get((test, quantity), Quantity())
