# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads OSU micro-benchmarks, versions 3 to 7: point to point, one-sided, collective, non-blocking, start-up."""

import re
from dataclasses import dataclass, field

from barewire.importers.output import Hints, Output, Text, Tool, Value, is_row

_HEADER = re.compile(
    r"^#\s*OSU (?:One Sided )?(?:MPI|NCCL|XCCL)(?P<call>_\w+)?(?:-\w+)? (?P<title>.+?) Test v(?P<version>\S+)"
)
_PAIRS = re.compile(r"^# \[ pairs: (\d{1,18}) \] \[ window size: (\w+) \]")
_INIT = re.compile(r"^nprocs: (\d{1,18}), min: \S+ ms, max: (\S+) ms, avg: (\S+) ms")
_SYNCHRONISATION = re.compile(r"^# Synchronization: MPI_Win_(\w+)")
_DATA_TYPE = re.compile(r"^# Datatype: (?:MPI_)?(\w+)")
_COLUMN_GAP = re.compile(r"\s{2,}")
_TAIL = re.compile(r"P\d+ Tail .*")

# Columns by their heading, which has the unit.
_COLUMNS = {
    "Size": "size",
    "Latency (us)": "time",
    "Avg Latency(us)": "time",
    "Min Latency(us)": "shortest",
    "Max Latency(us)": "longest",
    "Bandwidth (MB/s)": "rate",
    "Bi-Bandwidth (MB/s)": "rate",
    "MB/s": "rate",
    "Messages/s": "messages",
    "Iterations": "iterations",
    "Validation": "validation",
    "Overall(us)": "beside",
    "Compute(us)": "computation",
    "Pure Comm.(us)": "time",
}
# The overlap follows from the times; the others are parts of them.
_UNUSED = (
    *("Overlap(%)", "Coll. Init(us)", "MPI_Test(us)", "MPI_Wait(us)", "Min Comm.(us)", "Max Comm.(us)"),
    "Transmit Size",
)
_COLLECTIVES = {
    *("barrier", "bcast", "reduce", "allreduce", "reduce-scatter", "reduce-scatter-block", "gather", "gatherv"),
    *("scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw"),
}
_MULTIPLE = "Multiple Bandwidth / Message Rate"
_PINGPONGS = {
    "Latency": "blocking-standard",
    "Latency Persistent": "persistent",
    "Multi-threaded Latency": "multi-threaded",
    "Multi-process Latency": "multi-process",
    "Multi Latency": "all-pairs",
}
_RATES = {
    "Bandwidth": ("bandwidth", "window", "send_interval"),
    "Bandwidth Persistent": ("bandwidth", "window-persistent", "send_interval"),
    "Bi-Directional Bandwidth": ("bidirectional", "window", "exchange"),
    "Bi-Directional Bandwidth Persistent": ("bidirectional", "window-persistent", "exchange"),
}


@dataclass
class _Section:
    """One execution of one benchmark."""

    title: str
    call: str
    columns: list[str] = field(default_factory=list)
    pairs: int = 1
    window: str = ""
    synchronisation: str = ""
    data_type: str = ""


def _read(text: Text, hints: Hints) -> Output:
    output = Output()
    section: _Section | None = None
    for index, line in enumerate(text.lines):
        if header := _HEADER.match(line):
            section = _Section(header["title"], (header["call"] or "").removeprefix("_"))
            output.version = header["version"]
            _check(section, text, index)
        elif section is None:
            continue
        elif pairs := _PAIRS.match(line):
            section.pairs, section.window = int(pairs[1]), f"-{pairs[2]}"
        elif synchronisation := _SYNCHRONISATION.match(line):
            section.synchronisation = f"-{synchronisation[1].replace('_', '-')}"
        elif data_type := _DATA_TYPE.match(line):
            section.data_type = data_type[1].lower().replace("_", "-")
        elif line.startswith(("# Size", "# Avg Latency(", "# Overall(")):
            section.columns = _headings(text, index, line)
        elif init := _INIT.match(line):
            _startup(output, text, index, init)
        elif section.columns and line:
            _row(output, text, index, section, hints)
    return output


def _check(section: _Section, text: Text, index: int) -> None:
    known = ("Init", _MULTIPLE, *_PINGPONGS, *_RATES)
    if not section.call and section.title not in known and _collective(section.title) is None:
        raise text.error(index, f"OSU's '{section.title}' test cannot be imported")


def _headings(text: Text, index: int, line: str) -> list[str]:
    headings = _COLUMN_GAP.split(line.removeprefix("#").strip())
    for heading in headings:
        if heading not in _COLUMNS and heading not in _UNUSED and not _TAIL.fullmatch(heading):
            raise text.error(index, f"unknown column or unit '{heading}'; known: {', '.join(_COLUMNS)}")
    return headings


def _row(output: Output, text: Text, index: int, section: _Section, hints: Hints) -> None:
    words = text.lines[index].split()
    verdicts = {"Pass", "Fail"} & set(words)
    if not is_row([word for word in words if word not in verdicts], len(section.columns) - len(verdicts)):
        return
    if not text.is_whole_row(index, len(words), len(section.columns), output):
        return
    if "Fail" in words:
        raise text.error(index, "the messages arrived with wrong contents: these numbers are worth nothing")
    cells = {
        _COLUMNS[heading]: text.number(index, word)
        for heading, word in zip(section.columns, words, strict=True)
        if heading in _COLUMNS and word != "Pass"
    }
    size = text.size(index, words[0]) if "size" in cells else 0
    output.values += [value._replace(kind=section.data_type) for value in _values(section, size, cells, hints)]


def _values(section: _Section, size: int, cells: dict[str, float], hints: Hints) -> list[Value]:
    inner = int(cells.get("iterations", 1))
    if section.call:
        title = section.title.lower()
        passive = "-passive" if title.startswith("passive ") else ""
        both = "-both" if "bi-directional" in title else ""
        variant = section.call.lower().replace("_", "-") + section.synchronisation + passive + both
        if "rate" in cells:
            return [Value("onesided", size, cells["rate"] * 8, "Mbit/s", variant, "bandwidth", 2)]
        return [Value("onesided", size, cells["time"], "us", variant, "time", 2, inner=inner)]
    if section.title in _PINGPONGS:
        variant = _PINGPONGS[section.title]
        ranks = 2 if variant != "all-pairs" else hints.ranks or 0
        return [Value("pingpong", size, cells["time"], "us", variant, "half_round_trip", ranks, inner=inner)]
    if section.title in _RATES:
        test, variant, quantity = _RATES[section.title]
        return [Value(test, size, cells["rate"] * 8, "Mbit/s", variant, quantity, 2)]
    if section.title == _MULTIPLE:
        variant, pairs = f"window{section.window}", section.pairs
        total = Value("bandwidth", size, cells["rate"] * 8, "Mbit/s", variant, "send_interval", 2 * pairs, pairs)
        if "messages" not in cells:
            return [total]
        return [total, total._replace(test="rate", value=cells["messages"], unit="messages/s")]
    collective = _collective(section.title)
    assert collective is not None, "`_check` has refused other titles"
    return _collective_values(*collective, size, cells, hints.ranks or 0, inner)


def _collective_values(
    test: str, variant: str, size: int, cells: dict[str, float], ranks: int, inner: int
) -> list[Value]:
    if test == "nonblocking":
        names = ("time", "beside", "computation")
        return [Value(test, size, cells[name], "us", variant, name, ranks) for name in names if name in cells]
    quantities = (("time", "time_mean"), ("shortest", "time_min"), ("longest", "time"))
    return [
        Value(test, size, cells[name], "us", variant, quantity, ranks, inner=inner)
        for name, quantity in quantities
        if name in cells
    ]


def _collective(title: str) -> tuple[str, str] | None:
    """Return test and variant of a collective's title, such as `Non-blocking All-to-All Latency`; None if unknown."""
    name = title.lower().removesuffix(" latency")
    test = "nonblocking" if name.startswith("non-blocking ") else "collective"
    name = name.removeprefix("non-blocking ")
    before = "neighbourhood-" if name.startswith("neighborhood ") else ""
    behind = "-persistent" if name.endswith(" persistent") else ""
    name = name.removeprefix("neighborhood ").removesuffix(" persistent").removesuffix(" personalized exchange")
    name = name.replace("all-to-all", "alltoall").replace("broadcast", "bcast").replace("_", "-")
    return (test, f"{before}{name}{behind}") if name in _COLLECTIVES else None


def _startup(output: Output, text: Text, index: int, init: re.Match[str]) -> None:
    value = text.number(index, init[2])
    output.values.append(Value("startup", 0, value, "ms", "", "init", int(init[1])))


OSU = Tool(
    "osu",
    "OSU micro-benchmarks",
    "a line '# OSU MPI … Test v…'",
    lambda text: text.has(_HEADER),
    _read,
)
