# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads libfabric's fabtests (fi_rdm_pingpong, fi_rdm_bw …; tables or `-m`) and its fi_pingpong.

Tables do not say which program printed them: the line `-m` prints does, or the file's name, or the user.
"""

import re

from barewire.errors import WrongUse
from barewire.importers.output import Hints, Output, Text, Tool, Value, goodput, is_numeric, latency

_COLUMNS = ("bytes", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec")
_HEADER = re.compile(r"^\s*(?:name\s+)?bytes\s+(?:iters|#sent)\s.*(?:/sec|/xfer)")
_COMMAND = re.compile(r"^(\S*\bfi_\w+)\s.*:$")
_MACHINE_READABLE = re.compile(r"^- \{ xfer_size: (\d+), iterations: (\d+), .*MB/sec: (\S+), usec/xfer: (\S+), ")
_MACHINE_READABLE_START = "- { xfer_size:"
_PREFIXES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_COUNTS = {"k": 10**3, "m": 10**6, "b": 10**9}
_SIZE = re.compile(r"([\d.]+)([kmg]?)")
_COUNT = re.compile(r"=?(\d{1,18})([kmb]?)")
_TESTS = ("pingpong", "stream")
# Rates and times have two decimals.
_HALF_DIGIT = 0.005


def _read(text: Text, hints: Hints) -> Output:
    output = Output()
    headings: list[str] = []
    test = ""
    for index, line in enumerate(text.lines):
        if _HEADER.match(line):
            headings = _headings(text, index, line)
            test = "pingpong" if "#sent" in headings else _test(text, hints, "")
        elif command := _COMMAND.match(line):
            test = _test(text, hints, command[1])
        elif line.startswith(_MACHINE_READABLE_START):
            test = test or _test(text, hints, "")
            _machine_readable_row(output, text, index, test, hints)
        elif headings and line:
            _row(output, text, index, headings, test, hints)
    return output


def _headings(text: Text, index: int, line: str) -> list[str]:
    headings = line.split()
    missing = [name for name in _COLUMNS if name not in headings]
    if missing:
        raise text.error(index, f"the columns or units {', '.join(missing)} are missing")
    return headings


def _test(text: Text, hints: Hints, command: str) -> str:
    """Return whether a table is of a ping-pong or of a bandwidth test."""
    if hints.test:
        if hints.test not in _TESTS:
            raise WrongUse(f"--test must be {' or '.join(_TESTS)} for fabtests, not '{hints.test}'")
        return hints.test
    for name in (command, text.path.name):
        if re.search(r"pingpong|_lat|latency", name):
            return "pingpong"
        if re.search(r"(?:^|[^a-z])bw|bandwidth", name):
            return "stream"
    raise WrongUse(
        f"{text.path}: fabtests does not print which test this is: say --test pingpong or --test stream, "
        "or name the file after the program, such as fi_rdm_bw.txt"
    )


def _row(output: Output, text: Text, index: int, headings: list[str], test: str, hints: Hints) -> None:
    words = text.lines[index].split()
    if "name" in headings and len(words) == len(headings):
        words, headings = words[1:], headings[1:]
    size = _SIZE.fullmatch(words[0])
    damaged = [word for word in words if not _is_cell(word)]
    if size is None or (damaged and len(words) != len(headings)):
        return
    if damaged:
        raise text.not_a_number(index, damaged[0])
    if not text.is_whole_row(index, len(words), len(headings), output):
        return
    cells = dict(zip(headings, words, strict=True))
    if not cells.get("#ack", "=").startswith("="):
        output.left_out.append(f"{words[0]} B: messages were lost ({cells['#sent']} sent, {cells['#ack']} answered)")
        return
    size_bytes = text.number(index, size[1]) * _PREFIXES.get(size[2], 1)
    whole_bytes = text.size(index, f"{size_bytes:.0f}")
    count = _COUNT.fullmatch(words[1])
    inner = int(count[1]) * _COUNTS.get(count[2], 1) if count else 1
    time_us, rate_mb_s = text.number(index, cells["usec/xfer"]), text.number(index, cells["MB/sec"])
    # 20000 B are printed as 19k; rate by time tells, up to the rounding of both to two decimals.
    rounding = _HALF_DIGIT * (time_us + rate_mb_s + _HALF_DIGIT)
    if size_bytes != whole_bytes or (size[2] and abs(rate_mb_s * time_us - size_bytes) > rounding * (1 + 1e-9)):
        raise text.error(index, f"'{words[0]}' is rounded: run fabtests with -m, which prints sizes in full")
    output.values.append(_value(test, whole_bytes, time_us, rate_mb_s, hints, inner))


def _is_cell(word: str) -> bool:
    return is_numeric([word.lstrip("=+-").rstrip("kmgbs") or "x"])


def _machine_readable_row(output: Output, text: Text, index: int, test: str, hints: Hints) -> None:
    row = _MACHINE_READABLE.match(text.lines[index])
    if row is None or not text.lines[index].endswith("}"):
        output.unfinished = output.unfinished or f"line {index + 1} is cut short"
        return
    numbers = [text.number(index, word.rstrip(",")) for word in row.groups()]
    output.values.append(_value(test, text.size(index, row[1]), numbers[3], numbers[2], hints, int(numbers[1])))


def _value(test: str, size: int, time_us: float, rate_mb_s: float, hints: Hints, inner: int) -> Value:
    if test == "pingpong":
        return latency(size, time_us, hints, inner=inner)
    return goodput("stream", size, rate_mb_s * 8, hints, inner=inner)


FABTESTS = Tool(
    "fabtests",
    "fabtests",
    "a heading 'bytes iters total time MB/sec usec/xfer Mxfers/sec', or lines '- { xfer_size: …'",
    lambda text: text.has(_HEADER) or any(line.startswith(_MACHINE_READABLE_START) for line in text.lines),
    _read,
    takes_test=True,
)
