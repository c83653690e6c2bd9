# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads Intel MPI benchmarks (IMB-MPI1, IMB-NBC, IMB-RMA, IMB-P2P), from version 3 on."""

import re
from dataclasses import dataclass, field

from barewire.importers.output import Hints, Output, Text, Tool, Value, is_row

_VERSION = re.compile(r"^#\s*Intel ?\((?:R|r)\) MPI Benchmarks?(?: Suite)? V?([\w.]+?),")
_BENCHMARK = re.compile(r"^# Benchmarking (\S+)")
_PROCESSES = re.compile(r"^# #processes = (\d{1,18})")
_MODE = re.compile(r"^#\s+MODE: (\S+)")
_FACT = re.compile(r"^# (Machine|System|Release|Version)\s+: (.+)")
_END = re.compile(r"^# All processes entering MPI_Finalize")
_REFUSED = re.compile(r"^\s*(\d+)\s+.*(out-of-mem|int-overflow|time-out)")

_COLUMNS = {
    "#bytes": "size",
    "#repetitions": "repetitions",
    "t[usec]": "time",
    "t_min[usec]": "shortest",
    "t_max[usec]": "longest",
    "t_avg[usec]": "mean",
    "t_ovrl[usec]": "beside",
    "t_pure[usec]": "time",
    "t_CPU[usec]": "computation",
    "Msg/sec": "messages",
    "defects": "defects",
}
# Rates are derived from the times, because Mbytes are 2^20 bytes in old versions and 10^6 in new ones.
_UNUSED = ("Mbytes/sec", "overlap[%]")
_COLLECTIVES = {
    *("barrier", "bcast", "reduce", "allreduce", "reduce-scatter", "reduce-scatter-block", "gather", "gatherv"),
    *("scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv"),
}
# Test and variant of benchmarks whose columns are shortest, longest and mean time.
_EXCHANGES = {"Sendrecv": "sendrecv", "Exchange": "both-neighbours"}
_TIMES = {
    "PingPong": ("pingpong", "blocking-standard", "half_round_trip"),
    "PingPongSpecificSource": ("pingpong", "specific-source", "half_round_trip"),
    "PingPongAnySource": ("pingpong", "any-source", "half_round_trip"),
    "PingPing": ("exchange", "blocking-receive", "exchange"),
    "PingPingSpecificSource": ("exchange", "specific-source", "exchange"),
    "PingPingAnySource": ("exchange", "any-source", "exchange"),
}
_RATES = {"Uniband": "bandwidth", "Biband": "bidirectional", "Unirandom": "bandwidth", "Birandom": "bidirectional"}
_ONE_SIDED = re.compile(r"Accumulate|(?:Unidir|Bidir|All|One|Put|Get|Fetch|Compare|Exchange)_\w+")


@dataclass
class _Section:
    """One table: a benchmark with a number of processes."""

    name: str
    ranks: int = 0
    mode: str = ""
    columns: list[str] = field(default_factory=list)


def _read(text: Text, hints: Hints) -> Output:
    output = Output()
    section: _Section | None = None
    for index, line in enumerate(text.lines):
        if version := _VERSION.match(line):
            output.version = version[1]
        elif fact := _FACT.match(line):
            output.facts.setdefault(fact[1].lower(), fact[2].strip())
        elif benchmark := _BENCHMARK.match(line):
            section = _known(output, benchmark[1])
        elif section is None:
            continue
        elif processes := _PROCESSES.match(line):
            section.ranks = int(processes[1])
        elif mode := _MODE.match(line):
            section.mode = f"-{mode[1].lower()}"
        elif line.lstrip().startswith(("#bytes", "#repetitions")):
            section.columns = _headings(text, index, line)
        elif section.columns and line:
            _row(output, text, index, section)
    if not _is_ended(text):
        output.unfinished = (
            output.unfinished or "the line '# All processes entering MPI_Finalize' is missing at its end"
        )
    return output


def _is_ended(text: Text) -> bool:
    """Return whether the last execution in the file has ended."""
    for line in reversed(text.lines):
        if _END.match(line) or _BENCHMARK.match(line):
            return bool(_END.match(line))
    return False


def _known(output: Output, name: str) -> _Section | None:
    """Return the section of a benchmark; None, with a note, for one without a counterpart here."""
    if name in (*_TIMES, *_EXCHANGES, *_RATES) or _collective(name) or _ONE_SIDED.fullmatch(name):
        return _Section(name)
    output.left_out.append(f"{name}: no counterpart")
    return None


def _headings(text: Text, index: int, line: str) -> list[str]:
    headings = line.split()
    for heading in headings:
        if heading not in _COLUMNS and heading not in _UNUSED:
            raise text.error(index, f"unknown column or unit '{heading}'; known: {', '.join(_COLUMNS)}")
    return headings


def _row(output: Output, text: Text, index: int, section: _Section) -> None:
    line = text.lines[index]
    if refused := _REFUSED.match(line):
        output.left_out.append(f"{section.name}, {refused[1]} B: IMB reports {refused[2]}")
        return
    words = line.split()
    if not is_row(words, len(section.columns)):
        return
    if not text.is_whole_row(index, len(words), len(section.columns), output):
        return
    cells = {
        _COLUMNS[heading]: text.number(index, word)
        for heading, word in zip(section.columns, words, strict=True)
        if heading in _COLUMNS
    }
    if cells.get("defects"):
        raise text.error(index, "IMB found defects in the data: these numbers are worth nothing")
    size = text.size(index, words[0]) if "size" in cells else 0
    inner = int(cells.get("repetitions", 1))
    output.values += [value._replace(inner=inner) for value in _values(section, size, cells)]


def _values(section: _Section, size: int, cells: dict[str, float]) -> list[Value]:
    name, ranks = section.name, section.ranks
    if name in _TIMES and "time" in cells:
        test, variant, quantity = _TIMES[name]
        return [Value(test, size, cells["time"], "us", variant, quantity, ranks, max(1, ranks // 2))]
    if name in _RATES and "messages" in cells:
        variant = "window-random" if name.endswith("random") else "window"
        quantity = "exchange" if name.startswith("Bi") else "send_interval"
        rate = Value("rate", size, cells["messages"], "messages/s", variant, quantity, ranks, max(1, ranks // 2))
        if not size:
            return [rate]
        return [rate._replace(test=_RATES[name], value=size * 8e-6 * cells["messages"], unit="Mbit/s")]
    if name in _EXCHANGES:
        variant = _EXCHANGES[name] + ("-chain" if ranks > 2 else "")
        return _of_ranks("exchange", variant, "exchange", ranks, size, cells)
    collective = _collective(name)
    if collective and "beside" in cells:
        quantities = ("time", "beside", "computation")
        return [Value("nonblocking", size, cells[each], "us", collective[1], each, ranks) for each in quantities]
    if collective:
        return _of_ranks("collective", "".join(collective), "time", ranks, size, cells)
    variant = name.lower().replace("_", "-") + section.mode
    if "time" in cells:
        return [Value("onesided", size, cells["time"], "us", variant, "time", ranks)]
    return _of_ranks("onesided", variant, "time", ranks, size, cells)


def _of_ranks(test: str, variant: str, quantity: str, ranks: int, size: int, cells: dict[str, float]) -> list[Value]:
    """Return the slowest rank's time, the mean over the ranks, and the fastest rank's."""
    names = (("longest", quantity), ("mean", f"{quantity}_mean"), ("shortest", f"{quantity}_min"))
    return [Value(test, size, cells[name], "us", variant, each, ranks) for name, each in names if name in cells]


def _collective(name: str) -> tuple[str, str] | None:
    """Return a collective's prefix and name: `Iallreduce` is i and allreduce. None for other benchmarks."""
    plain = name.lower().replace("_", "-").removesuffix("-pure")
    for prefix in ("", "i"):
        if plain.startswith(prefix) and plain[len(prefix) :] in _COLLECTIVES:
            return prefix, plain[len(prefix) :]
    return None


IMB = Tool(
    "imb",
    "Intel MPI benchmarks",
    "a line '# Benchmarking …' with its table",
    lambda text: text.has(_BENCHMARK),
    _read,
)
