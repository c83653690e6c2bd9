# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A host's run without the program: records of a simple cost model, read like the program's."""

import json
from pathlib import Path

import polars as pl

from barewire.measure.host_records import HOST_RECORDS_SCHEMA, read_host_records
from barewire.results.run import Run
from barewire.results.series import series_from_samples


def write_launch(path: Path, test: str, samples: list[tuple[str, int, str, str, int, list[int]]]) -> Path:
    """Write one launch's file; a sample is (subject, block, phase, quantity, operations, values)."""
    names = ("subject", "block_bytes", "phase", "quantity", "operations", "values")
    records = [{"record": "start", "schema": HOST_RECORDS_SCHEMA, "test": test}]
    records += [{"record": "samples", "unit": "ns", **dict(zip(names, sample, strict=True))} for sample in samples]
    records.append({"record": "end", "complete": True})
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def synthetic_host(directory: Path, launches: int = 6, slowdown: float = 1.0) -> tuple[Run, pl.DataFrame]:
    """Make a run of `launches` launches of memory, wakeup, send and context; `slowdown` multiplies all times."""
    frames = []
    for number in range(launches):
        noise = slowdown * (1 + 0.001 * number)
        memory = [("read", size, "measure", "bandwidth", 10, [int(size * rate * noise)] * 5)
                  for size, rate in ((8192, 1), (1 << 26, 10))]  # fmt: skip
        wakeup = [("pipe/same", 0, "measure", "time", 10, [int(10_000 * noise)] * 5),
                  ("pipe/self", 0, "measure", "time", 20, [int(6_000 * noise)] * 5),
                  ("pipe/same", 0, "warmup", "time", 1, [99_000])]  # fmt: skip
        send = [(way, size, "measure", "time", 20, [int(20 * (fixed + size * each) * noise)] * 5)
                for way, fixed, each in (("copied", 450, 0.05), ("gathered", 500, 0.04))
                for size in (64, 1024, 4096, 8192)]  # fmt: skip
        context = [(name, size, "measure", "time", 10, [int((each + size / 100) * 10 * noise)] * 5)
                   for name, each in (("alone", 600), ("processes-2", 1500), ("processes-8", 1800))
                   for size in (0, 16384)]  # fmt: skip
        for test, samples in (("memory", memory), ("wakeup", wakeup), ("send", send), ("context", context)):
            file = write_launch(directory / f"{number}-{test}.jsonl", test, samples)
            frames.append(read_host_records(file, len(frames)).samples)
    frame = pl.concat(frames)
    run = Run("synthetic", "2026-01-02T03:04:05Z", ("barewire", "bench", "host"), 1, True, None, {"kind": "host"},
              {"cpu": "Test", "kernel": "1"}, None, (), tuple(series_from_samples(frame)))  # fmt: skip
    return run, frame
