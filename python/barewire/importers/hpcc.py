# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the summary sections of HPC Challenge's hpccoutf.txt, one of each execution."""

import re
from collections.abc import Callable
from typing import NamedTuple

from barewire.importers.output import Hints, Output, Text, Tool, Value

_TITLE = re.compile(r"HPC Challenge Benchmark version ([\d.]+)")
_BEGIN, _END = "Begin of Summary section.", "End of Summary section."
_ENTRY = re.compile(r"^(\w+)=(.*)$")
# HPC Challenge's message sizes, from its bench_lat_bw.
_LATENCY_BYTES, _BANDWIDTH_BYTES = 8, 2_000_000
# Entries of a summary by name, each with its line's number.
_Summary = dict[str, tuple[int, str]]


class _Entry(NamedTuple):
    """How one entry of the summary is imported; `convert` to `unit`."""

    name: str
    test: str
    variant: str
    quantity: str
    message_bytes: int
    unit: str
    convert: Callable[[float], float] = float


def _time_us(rate_gb_s: float) -> float:
    """Return the time of HPC Challenge's long message one way, from its rate in GB/s."""
    return _BANDWIDTH_BYTES * 1e-3 / rate_gb_s


def _mbit_s(rate_gb_s: float) -> float:
    return rate_gb_s * 8e3


def _times_1000(value: float) -> float:
    return value * 1e3


_PINGPONG = (("Avg", "mean-of-pairs"), ("Min", "best-pair"), ("Max", "worst-pair"))
_ENTRIES = (
    *(
        _Entry(f"{what}PingPongLatency_usec", "pingpong", variant, "half_round_trip", _LATENCY_BYTES, "us")
        for what, variant in _PINGPONG
    ),
    *(
        _Entry(
            f"{what}PingPongBandwidth_GBytes", "pingpong", variant, "half_round_trip", _BANDWIDTH_BYTES, "us", _time_us
        )
        for what, variant in (("Avg", "mean-of-pairs"), ("Max", "best-pair"), ("Min", "worst-pair"))
    ),
    *(
        _Entry(f"{order}OrderedRingLatency_usec", "ring", variant, "latency", _LATENCY_BYTES, "us")
        for order, variant in (("Naturally", "natural"), ("Randomly", "random"))
    ),
    *(
        _Entry(f"{order}OrderedRingBandwidth_GBytes", "ring", variant, "bandwidth", _BANDWIDTH_BYTES, "Mbit/s", _mbit_s)
        for order, variant in (("Naturally", "natural"), ("Randomly", "random"))
    ),
    _Entry("HPL_Tflops", "hpcc", "hpl", "flops", 0, "Gflop/s", _times_1000),
    _Entry("MPIFFT_Gflops", "hpcc", "fft", "flops", 0, "Gflop/s"),
    _Entry("PTRANS_GBs", "hpcc", "ptrans", "memory", 0, "MB/s", _times_1000),
    _Entry("MPIRandomAccess_GUPs", "hpcc", "random-access", "updates", 0, "Mupdates/s", _times_1000),
    _Entry("StarSTREAM_Triad", "hpcc", "stream-triad-all-ranks", "memory", 0, "MB/s", _times_1000),
    _Entry("SingleSTREAM_Triad", "hpcc", "stream-triad-one-rank", "memory", 0, "MB/s", _times_1000),
    _Entry("StarDGEMM_Gflops", "hpcc", "dgemm-all-ranks", "flops", 0, "Gflop/s"),
    _Entry("SingleDGEMM_Gflops", "hpcc", "dgemm-one-rank", "flops", 0, "Gflop/s"),
)


def _read(text: Text, hints: Hints) -> Output:
    output = Output()
    for summary in _summaries(text, output):
        _add_values(output, text, summary)
    output.left_out = list(dict.fromkeys(output.left_out))
    return output


def _summaries(text: Text, output: Output) -> list[_Summary]:
    """Return the summary of each execution, which are appended to one file; notes in `output` if one is not whole."""
    summaries: list[_Summary] = []
    # Of the execution that has begun.
    missing: str | None = None
    for index, line in enumerate(text.lines):
        title = _TITLE.search(line)
        if title or line == _BEGIN:
            if missing == _END or (missing and title):
                _unfinished(output, missing)
            if title:
                output.version, missing = title[1], _BEGIN
            else:
                summaries.append({})
                missing = _END
        elif missing == _END and line == _END:
            missing = None
        elif missing == _END and (entry := _ENTRY.match(line)):
            summaries[-1][entry[1]] = index, entry[2]
    if missing:
        _unfinished(output, missing)
    return summaries


def _unfinished(output: Output, missing: str) -> None:
    output.unfinished = output.unfinished or f"the line '{missing}' is missing"


def _add_values(output: Output, text: Text, summary: _Summary) -> None:
    if summary.get("Success", (0, "1"))[1] != "1":
        raise text.error(summary["Success"][0], "HPC Challenge reports that its run failed (Success=0)")
    ranks = _ranks(text, summary)
    for entry in _ENTRIES:
        if entry.name not in summary:
            output.left_out.append(f"{entry.name}: not in the summary")
            continue
        index, word = summary[entry.name]
        if word.startswith("-"):
            # HPC Challenge marks what it did not run by -1.
            output.left_out.append(f"{entry.name}: not measured")
            continue
        value = text.number(index, word)
        printed = Value(entry.test, entry.message_bytes, value, entry.unit, entry.variant, entry.quantity, ranks)
        output.values.append(printed._replace(value=entry.convert(value)) if value else printed)


def _ranks(text: Text, summary: _Summary) -> int:
    if "CommWorldProcs" not in summary:
        return 0
    index, word = summary["CommWorldProcs"]
    return text.size(index, word)


HPCC = Tool(
    "hpcc",
    "HPC Challenge",
    f"the line '{_BEGIN}' of hpccoutf.txt",
    lambda text: text.has(_TITLE) or _BEGIN in text.lines,
    _read,
)
