# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What other benchmarks print, made from given numbers: the form is theirs, the numbers are ours."""

from collections.abc import Mapping, Sequence

# µs one way, by size.
TIMES_US = {1: 1.5, 64: 1.75, 1024: 3.25, 65536: 41.5}


def osu(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]], *, version: str = "7.4") -> str:
    heading = f"# {headings[0]:8}" + "".join(f"{name:>18}" for name in headings[1:])
    lines = [f"# OSU MPI {title} Test v{version}", "# Datatype: MPI_CHAR.", heading]
    return "\n".join(["", *lines, *(f"{row[0]:<10}" + "".join(f"{cell:>18}" for cell in row[1:]) for row in rows), ""])


def osu_latency(times_us: Mapping[int, float] = TIMES_US, **settings: str) -> str:
    rows = [(size, f"{time:.2f}") for size, time in times_us.items()]
    return osu("Latency", ("Size", "Avg Latency(us)"), rows, **settings)


def imb(*tables: tuple[str, int, Sequence[str], Sequence[Sequence[object]]], end: bool = True) -> str:
    """Each table: benchmark, processes, headings, rows."""
    rule = "#" + "-" * 48
    lines = [rule, "#    Intel(R) MPI Benchmarks 2021.7, MPI-1 part", rule]
    lines += ["# Date                  : Thu Jan  1 00:00:00 2026", "# Machine               : x86_64"]
    for name, processes, headings, rows in tables:
        lines += ["", rule, f"# Benchmarking {name} ", f"# #processes = {processes} ", rule]
        lines += ["".join(f"{heading:>13}" for heading in headings)]
        lines += ["".join(f"{cell:>13}" for cell in row) for row in rows]
    return "\n".join([*lines, "", "", *(["# All processes entering MPI_Finalize", ""] if end else [])])


def imb_pingpong(times_us: Mapping[int, float] = TIMES_US, **settings: bool) -> str:
    rows = [(size, 1000, f"{time:.2f}", f"{size / time:.2f}") for size, time in times_us.items()]
    return imb(("PingPong", 2, ("#bytes", "#repetitions", "t[usec]", "Mbytes/sec"), rows), **settings)


def netpipe(times_us: Mapping[int, float] = TIMES_US) -> str:
    """Version 3: Mbps are 2^20 bits."""
    rows = [
        f"{number:3}: {size:7} bytes {1000:6} times --> {size * 8 / time * 1e6 / 2**20:8.2f} Mbps in {time:10.2f} usec"
        for number, (size, time) in enumerate(times_us.items())
    ]
    return "\n".join(["Now starting the main loop", *rows, ""])


def netpipe_file(times_us: Mapping[int, float] = TIMES_US, *, columns: int = 3) -> str:
    if columns == 3:
        return "".join(
            f"{size:8} {size * 8 / time * 1e6 / 2**20:f} {time / 1e6:12.8f}\n" for size, time in times_us.items()
        )
    rates = {size: size * 8e-3 / time for size, time in times_us.items()}
    return "".join(
        f"{size:9} {rates[size]:9.3f} {rates[size]:9.3f} {rates[size]:9.3f} {time:7.2f}\n"
        for size, time in times_us.items()
    )


def netpipe_5(times_us: Mapping[int, float]) -> str:
    """Version 5 on a terminal: colours, and units that follow the number."""
    rows = []
    for number, (size, time) in enumerate(times_us.items(), 1):
        short = size < 1000
        text = f"    {size:3}  B" if short else f"{size / 1e3:7.3f} KB"
        rate = size * 8 / time
        rate_text = f"{rate:7.3f} Mbps" if rate < 1000 else f"{rate / 1e3:7.3f} Gbps"
        rows.append(
            f"{number:3}: \x1b[32m{text}\x1b[0m {24999:9} times -->  \x1b[35m{rate_text}\x1b[0m  in  {time:7.3f} usecs"
        )
    return "\n".join([*rows, "", "Completed with        max bandwidth  12.6 Gbps      1.500 usecs latency", ""])


def hpcc(entries: Mapping[str, object], *, success: int = 1, end: bool = True) -> str:
    lines = ["This is the DARPA/DOE HPC Challenge Benchmark version 1.5.0 October 2012", "End of HPL section."]
    lines += ["Begin of Summary section.", f"Success={success}", "CommWorldProcs=4", "HPL_N=100"]
    lines += [f"{name}={value}" for name, value in entries.items()]
    return "\n".join([*lines, *(["End of Summary section.", ""] if end else [""])])


def fabtests(rows: Sequence[tuple[str, str, float, float]], *, name: str | None = None) -> str:
    """Each row: size and count as printed, MB/sec, usec/xfer."""
    before = f"{'name':50}" if name else ""
    lines = [before + f"{'bytes':8}{'iters':8}{'total':8}{'time':>8} {'MB/sec':>10}{'usec/xfer':>13}{'Mxfers/sec':>13}"]
    for size, count, rate, time in rows:
        cells = f"{size:8}{count:8}{'1.2m':8}{0.02:8.2f}s{rate:10.2f}{time:11.2f}{1 / time:11.2f}"
        lines.append((f"{name:50}" if name else "") + cells)
    return "\n".join([*lines, ""])


def fabtests_in_full(program: str, rows: Sequence[tuple[int, float]]) -> str:
    lines = ["---", f"{program} -p tcp -m 10.0.0.1 :"]
    for size, time in rows:
        lines.append(
            f"- {{ xfer_size: {size}, iterations: 1000, total: {size * 2000}, time: {time * 2e-3:f}, "
            f"MB/sec: {size / time:f}, usec/xfer: {time:f}, Mxfers/sec: {1 / time:f} }}"
        )
    return "\n".join([*lines, ""])


def nccl(
    rows: Sequence[tuple[int, float, float]],
    *,
    program: str | None = "all_reduce_perf",
    ranks: int = 4,
    wrong: str = "0",
    kinds: Sequence[tuple[str, str, int]] = (("float", "sum", -1),),
) -> str:
    """Each row: size, µs out of place, µs in place; all rows for each data type, operation and root, slower by 1 µs."""
    factor = 2 * (ranks - 1) / ranks
    lines = ["# nccl-tests version 2.17.6", f"# Collective test starting: {program}"] if program else []
    lines += ["# nThread 1 nGpus 4 minBytes 8 maxBytes 1024 step: 2(factor)", "#", "# Using devices"]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid 100 on node device {rank:2} [0000:0{rank}:00] GPU" for rank in range(ranks)
    ]
    half = "    time   algbw   busbw  #wrong"
    lines += [f"#       size         count      type   redop    root {half} {half}"]
    lines += [
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"
    ]
    for slower, (data_type, operation, root) in enumerate(kinds):
        for size, *times_us in rows:
            times = [us + slower for us in times_us]
            halves = [f"{us:8.2f} {size / us / 1e3:7.2f} {size / us / 1e3 * factor:7.2f} {wrong:>6}" for us in times]
            lines.append(f"{size:12} {size // 4:12} {data_type:>9} {operation:>7} {root:7} {' '.join(halves)}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1.5 ", "#", ""])


def without_last(text: str, characters: int) -> str:
    """Cut text short, as a full disk or a killed job does."""
    return text.rstrip("\n")[:-characters]
