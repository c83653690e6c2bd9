# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A plausible run without a probe: seeded samples of a simple cost model, for tests of everything that reads runs."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from barewire.models.wire import Link
from barewire.results.run import Launch, Run, Series
from barewire.results.schema import SampleRows
from barewire.results.series import series_from_samples
from barewire.results.store import write_run

SIZES = (1, 64, 512, 1400, 4096, 16384, 65536)
SUBJECTS = ("tcp", "udp", "raw", "floor")
# (fixed cost in µs, cost per KiB in µs) of one message one way, and of one message in a stream
COST_US = {
    "floor": (1.15, 0.25),
    "raw": (1.2, 0.27),
    "raw/block": (4.9, 0.27),
    "udp": (2.9, 0.30),
    "udp/block": (8.1, 0.30),
    "tcp": (3.6, 0.28),
    "tcp/block": (9.4, 0.28),
    "tcp/busypoll": (3.4, 0.28),
}


def synthetic_run(
    directory: Path,
    *,
    seed: int = 1,
    launches: int = 8,
    samples_per_launch: int = 60,
    tests: tuple[str, ...] = ("pingpong", "stream"),
    subjects: tuple[str, ...] = SUBJECTS,
    sizes: tuple[int, ...] = SIZES,
    link: Link | None = None,
    slowdown: float = 1.0,
    slower: Mapping[str, float] | None = None,
    drift: float = 1.0,
    complete: bool = True,
    fingerprint: str = "cafe",
) -> Run:
    """Write a run into `directory` and return it. Deterministic for a seed, and made once for equal arguments.

    `slowdown` multiplies every time, `slower` those of a subject, and `drift` all by the end of the run.
    """
    arguments = (seed, launches, samples_per_launch, tests, subjects, sizes, link, slowdown, slower, drift, complete)
    key = repr((arguments, fingerprint))
    if key in _made:
        run, copy = _made[key]
        shutil.copytree(copy.name, directory, dirs_exist_ok=True)
        return run
    generator = np.random.default_rng(seed)
    order = generator.permutation([(test, subject) for test in tests for subject in subjects] * launches)
    rows, records = SampleRows(), []
    for index, (test, subject) in enumerate(order.tolist()):
        factor = slowdown * generator.normal(1, 0.004) * (slower or {}).get(subject, 1.0)
        factor *= drift ** (index / (len(order) - 1))
        for message_bytes in sizes:
            _add_launch(rows, generator, index, test, subject, message_bytes, samples_per_launch, factor)
        records.append(Launch(index, subject, test, started="2026-01-02T03:04:05Z", details={"pairs": 1}))
    frame = rows.frame()
    link = link or Link(rate_bit_s=None)
    run = Run(
        id=f"synthetic-{seed}",
        created="2026-01-02T03:04:05Z",
        command=("barewire", "bench", *tests, "--transport", ",".join(subjects)),
        seed=seed,
        complete=complete,
        stopped_by=None if complete else "interrupt",
        parameters={"sizes": list(sizes), "launches": launches},
        environment={
            "kernel": "6.1.0-test",
            "cpu": {"model": "Example CPU <1>", "cores": 2},
            "governor": None,
            "mtu": link.mtu,
            "offloads": {"tso": True, "gro": True},
            "fingerprint": fingerprint,
        },
        lab={"topology": "pair", "rate_bit_s": link.rate_bit_s, "mtu": link.mtu, "offloads": True},
        launches=tuple(records),
        series=tuple(series_from_samples(frame, link)),
    )
    if not complete:
        run = replace(run, series=tuple(replace(series, stop="incomplete") for series in run.series))
    copy = tempfile.TemporaryDirectory()
    write_run(Path(copy.name), run, frame)
    _made[key] = run, copy
    shutil.copytree(copy.name, directory, dirs_exist_ok=True)
    return run


_made: dict[str, tuple[Run, "tempfile.TemporaryDirectory[str]"]] = {}


def _add_launch(
    rows: SampleRows,
    generator: np.random.Generator,
    launch: int,
    test: str,
    subject: str,
    message_bytes: int,
    count: int,
    drift: float,
) -> None:
    fixed_us, per_kib_us = COST_US[subject]
    time_us = (fixed_us + per_kib_us * message_bytes / 1024) * drift
    # Skewed noise with a tail, as interrupts cause it.
    times_us = time_us * (0.98 + generator.exponential(0.02, count)) + 8 * (generator.random(count) < 0.02)
    value = times_us if test == "pingpong" else message_bytes * 8 / (times_us * 0.6)
    lossy = (subject == "udp") & (test != "pingpong") & (generator.random(count) < 0.1)
    rows.add(
        value.tolist(),
        launch=launch,
        test=test,
        subject=subject,
        message_bytes=message_bytes,
        phase=["warmup" if n < count // 10 else "measure" for n in range(count)],
        block=range(count),
        unit="us" if test == "pingpong" else "Mbit/s",
        lost=np.where(lossy, 3, 0).tolist() if test != "pingpong" else 0,
    )


def series_of(
    launch_medians: Sequence[float],
    *,
    subject: str = "raw",
    test: str = "pingpong",
    message_bytes: int = 64,
    unit: str = "us",
) -> Series:
    """A series with these launches and nothing else that matters to a comparison."""
    middle = float(np.median(launch_medians)) if len(launch_medians) else None
    count = len(launch_medians)
    return Series(
        test=test,
        subject=subject,
        pairs=1,
        message_bytes=message_bytes,
        unit=unit,
        median=middle,
        interval=None,
        mean=middle,
        mean_interval=None,
        min=middle,
        p01=middle,
        p25=middle,
        p75=middle,
        p99=middle,
        max=middle,
        launches=count,
        samples=count,
        samples_measured=count,
        lost=0,
        lossy_samples=0,
        limit=None,
        limit_kind=None,
        fraction_of_limit=None,
        verdict="no limit known",
        stop="converged",
        launch_medians=tuple(launch_medians),
    )


def run_of(name: str, series: Sequence[Series]) -> Run:
    """A run of these series, without files."""
    return Run(
        id=name,
        created="2026-01-02T03:04:05Z",
        command=("barewire",),
        seed=1,
        complete=True,
        stopped_by=None,
        parameters={},
        environment={"fingerprint": "cafe"},
        lab=None,
        launches=(),
        series=tuple(series),
    )
