# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads NetPIPE, versions 3 to 5: what it prints, and its np.out.

Version 3 counts Mbps as 2^20 bits, so values are computed from the printed times. Neither form says whether NetPIPE
streamed (-s) or sent in both directions (-2): the user does, by `Hints.test`.
"""

import re

from barewire.errors import WrongUse
from barewire.importers.output import Hints, Output, Text, Tool, Value, goodput, is_numeric, latency

_ROW = re.compile(
    r"^\s*\d+:\s+(?P<size>[\d.]+)\s+(?P<bytes>bytes|B|KB|MB|GB)\s+(?P<repeats>\d{1,18}) times\s+-->\s*"
    r"(?:(?P<rate>[\d.]+|nan|inf)\s+(?P<rate_unit>\w*bps)\s+in\s+(?P<time>[\d.]+|nan|inf)\s+(?P<time_unit>\w*secs?)\b)?"
)
_WRONG = re.compile(r"\b[1-9]\d* failures")
_BYTES = {"bytes": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
# Version 3 writes usec, version 5 nsecs to secs.
_MICROSECONDS = {"usec": 1.0, "nsecs": 1e-3, "usecs": 1.0, "msecs": 1e3, "secs": 1e6}
_BITS = {"bps": 1.0, "Kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9, "Tbps": 1e12}
_TESTS = ("pingpong", "stream", "bidirectional")
# Largest relative difference between a printed rate and size divided by time, beyond rounding of the last digit: a
# version's million may be 2^20.
_TOLERANCE = 0.06


def _read(text: Text, hints: Hints) -> Output:
    test = hints.test or "pingpong"
    if test not in _TESTS:
        raise WrongUse(f"--test must be {', '.join(_TESTS[:-1])} or {_TESTS[-1]} for NetPIPE, not '{test}'")
    output = Output()
    printed = text.has(_ROW)
    for index, line in enumerate(text.lines):
        if printed and (row := _ROW.match(line)):
            _printed_row(output, text, index, row, test, hints)
        elif not printed and line:
            _file_row(output, text, index, test, hints)
    return output


def _printed_row(output: Output, text: Text, index: int, row: re.Match[str], test: str, hints: Hints) -> None:
    if _WRONG.search(text.lines[index]):
        raise text.error(index, "NetPIPE received wrong contents: these numbers are worth nothing")
    if reason := text.cut_row(index, 7 if row["time_unit"] else 4, 7):
        output.unfinished = output.unfinished or reason
        return
    size = text.number(index, row["size"]) * _BYTES[row["bytes"]]
    # Three decimals: exact in kB, not in MB.
    if row["bytes"] not in ("bytes", "B", "KB"):
        output.left_out.append(f"{row['size']} {row['bytes']}: NetPIPE rounds sizes from 1 MB on; import its np.out")
        return
    if row["time_unit"] not in _MICROSECONDS or row["rate_unit"] not in _BITS:
        raise text.error(index, f"unknown units {row['rate_unit']} and {row['time_unit']}")
    time_us = text.number(index, row["time"]) * _MICROSECONDS[row["time_unit"]]
    rate_mbit_s = text.number(index, row["rate"]) * _BITS[row["rate_unit"]] / 1e6
    directions = 2 if test == "bidirectional" else 1
    _check(text, index, round(size) * directions, time_us, rate_mbit_s)
    output.values.append(_value(test, text.size(index, str(round(size))), time_us, hints, int(row["repeats"])))


def _file_row(output: Output, text: Text, index: int, test: str, hints: Hints) -> None:
    """Read a line of np.out: bytes, Mbps, seconds; or bytes, three rates in Gbps, µs."""
    words = text.lines[index].split()
    if not is_numeric(words):
        raise text.error(index, "neither what NetPIPE prints nor its np.out")
    if reason := text.cut_row(index, len(words), 3):
        output.unfinished = output.unfinished or reason
        return
    numbers = [text.number(index, word) for word in words]
    if len(words) == 3:
        time_us, rate_mbit_s = numbers[2] * 1e6, numbers[1]
    elif len(words) == 5:
        time_us, rate_mbit_s = numbers[4], numbers[1] * 1e3
    else:
        raise text.error(index, f"np.out has three columns, or five since version 5, not {len(words)}")
    size = text.size(index, words[0])
    _check(text, index, size, time_us, rate_mbit_s)
    # np.out counts the bytes of both directions.
    output.values.append(_value(test, size // 2 if test == "bidirectional" else size, time_us, hints, 1))


def _check(text: Text, index: int, size: int, time_us: float, rate_mbit_s: float) -> None:
    """Reject a row whose rate is not its size divided by its time: other units, or another tool's file."""
    expected = size * 8 / time_us if time_us else 0.0
    # Times have at least two decimals of a µs. Rates have two decimals of Mbit/s, or in np.out three of Gbit/s.
    rounding = 0.5 + (expected * 0.005 / time_us if time_us else 0.0)
    if abs(rate_mbit_s - expected) > _TOLERANCE * expected + rounding:
        raise text.error(
            index,
            f"{size} B in {time_us:g} µs are {expected:.4g} Mbit/s, not {rate_mbit_s:.4g}: "
            "these are other units, another direction (--test bidirectional), or another tool's numbers",
        )


def _value(test: str, size: int, time_us: float, hints: Hints, inner: int) -> Value:
    if test == "pingpong" or not time_us:
        return latency(size, time_us, hints, inner=inner)
    bits = size * 8 * (2 if test == "bidirectional" else 1)
    return goodput(test, size, bits / time_us, hints, inner=inner)


def _recognises(text: Text) -> bool:
    if text.has(_ROW):
        return True
    rows = [line.split() for line in text.lines if line]
    return {len(row) for row in rows[:-1]} <= {3, 5} and all(map(is_numeric, rows))


NETPIPE = Tool(
    "netpipe",
    "NetPIPE",
    "lines 'N: … bytes … times --> … Mbps in … usec', or np.out's columns of numbers",
    _recognises,
    _read,
    takes_test=True,
)
