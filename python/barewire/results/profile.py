# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the profiler's files of an MPI program: one for each process, in the layout of mpi/profiler/layout.h."""

import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from barewire.errors import MeasurementFailed

SUFFIX = ".rank"
MILESTONES = ("loaded", "init_begin", "init_end", "finalize_begin", "finalize_end", "left")
# Kinds of calls in which a rank may wait for others.
WAITING = ("send", "receive", "probe", "wait", "collective", "synchronise")
ASKING = "test"
OTHERS = "other calls"
_MAGIC = b"bwprof3\0"
_HEADER = struct.Struct("=8s6I6i2I9Q256s256s256s256s")
_NAME = struct.Struct("=12s40s")
_BLOCK = struct.Struct("=8Q")
_ENTRY = struct.Struct("=6Q")
_LONGEST = struct.Struct("=4Qq")
_STATES = ("running", "finalised", "aborted")
_OTHER_CALL = 0xFFFF
_NONE = 2**64 - 1
_GIGA = 1e9


@dataclass(frozen=True)
class CallRow:
    """Calls of one kind and one size class: messages from `bytes_from` to below `bytes_below`, None if unknown."""

    call: str
    kind: str
    bytes_from: int | None
    bytes_below: int | None
    calls: int
    bytes: int
    time_s: float
    shortest_s: float
    longest_s: float

    @property
    def waits(self) -> bool:
        """Whether calls of this kind may wait for other ranks."""
        return self.kind in WAITING


@dataclass(frozen=True)
class Wait:
    """One long call; `at_s` is after the start of MPI_Init. A peer below 0 is any, or none."""

    call: str
    rank: int
    bytes: int | None
    peer: int | None
    at_s: float
    time_s: float


@dataclass(frozen=True)
class Inside:
    """A call that a thread was in when its process ended; it started `at_s` after the start of MPI_Init."""

    call: str
    at_s: float


@dataclass(frozen=True)
class ThreadTimes:
    """A thread that called MPI, or successive ones of which each began after the end of the one before."""

    # From the start of the first call to the end of the last.
    calling_s: float
    mpi_s: float


@dataclass(frozen=True)
class RankProfile:
    """One process: times in seconds; `milestones` are relative to its start, None if not reached."""

    rank: int
    size: int
    host: str
    pid: int
    program: str
    library: str
    job: str
    spawned: bool
    state: str
    abort_code: int | None
    light: bool
    thread_level: int
    threads: int
    threads_unrecorded: int
    cost_per_call_s: float
    milestones: dict[str, float | None]
    last_call_s: float | None
    calls: tuple[CallRow, ...]
    longest: tuple[Wait, ...]
    inside: tuple[Inside, ...]
    # The thread that called MPI first is the first.
    each_thread: tuple[ThreadTimes, ...]
    # Time in MPI over time: seconds in each bin, from the start of MPI_Init.
    bin_s: float
    bins: tuple[float, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return one JSON object."""
        return {"schema": "barewire-profile-rank/1", **asdict(self)}

    @property
    def main_s(self) -> float | None:
        """Time from MPI_Init's end to MPI_Finalize, or to the last call without it; None before MPI_Init's end."""
        begin, end = self.milestones["init_end"], self.milestones["finalize_begin"]
        if begin is None:
            return None
        end = end if end is not None else max(self.last_call_s or begin, self.milestones["left"] or begin)
        return max(0.0, end - begin)

    @property
    def mpi_s(self) -> float:
        """Time in calls, of all threads together."""
        return sum(row.time_s for row in self.calls)

    @property
    def asking_s(self) -> float:
        """The part of it in calls that test for completion."""
        return sum(row.time_s for row in self.calls if row.kind == ASKING)

    @property
    def count(self) -> int:
        """Number of calls."""
        return sum(row.calls for row in self.calls)


def read_profiles(folder: Path) -> list[RankProfile]:
    """Read the profiles of one job, sorted by world, job and rank. MeasurementFailed for a file that is no profile.

    A process that was killed before it wrote its header has an empty profile, which is skipped.
    """
    # One after the other: each is 4 MB long, most of it a hole, and a job may have thousands of ranks.
    files = ((file.name, file.read_bytes()) for file in sorted(folder.glob(f"*{SUFFIX}")))
    try:
        profiles = [read_profile(data, name) for name, data in files if data[: len(_MAGIC)].strip(b"\0")]
    except (ValueError, struct.error) as error:
        raise MeasurementFailed(
            f"a rank's profile in {folder} is damaged: {error}. Is the disk full, or another version's profiler in "
            "LD_PRELOAD?"
        ) from error
    return sorted(profiles, key=lambda profile: (profile.spawned, profile.job, profile.rank, profile.pid))


def read_profile(data: bytes, name: str) -> RankProfile:
    """Read one process's file. ValueError if it is invalid."""
    if len(data) < _HEADER.size or data[:8] != _MAGIC:
        raise ValueError(f"{name} is not a profile of this version")
    fields = _HEADER.unpack_from(data)
    names, block_offset, block_bytes, entries, longest, bins = fields[1:7]
    rank, size, pid, level, spawned, abort_code, cost_ps, light, state, threads, unrecorded = fields[7:18]
    times = dict(zip(MILESTONES, fields[18:24], strict=True))
    host, program, library, job = (text.split(b"\0")[0].decode(errors="replace") for text in fields[24:28])
    functions = [
        tuple(part.split(b"\0")[0].decode() for part in _NAME.unpack_from(data, _HEADER.size + index * _NAME.size))
        for index in range(names)
    ]
    thread_count = min(threads, (len(data) - block_offset) // block_bytes)
    blocks = [
        _Block(data, block_offset + index * block_bytes, (entries, longest, bins), functions)
        for index in range(0 if light else thread_count)
    ]
    begin, loaded = times["init_begin"], times["loaded"]
    last = max((block.until for block in blocks), default=0)
    bin_s, merged = _merged_bins(blocks)
    return RankProfile(
        rank=rank,
        size=size,
        host=host,
        pid=pid,
        program=program,
        library=library,
        job=job,
        spawned=bool(spawned),
        state=_STATES[state],
        abort_code=abort_code if state == _STATES.index("aborted") else None,
        light=bool(light),
        thread_level=level,
        threads=len(blocks),
        threads_unrecorded=unrecorded,
        cost_per_call_s=cost_ps / 1e12,
        milestones={milestone: (time - loaded) / _GIGA if time else None for milestone, time in times.items()},
        last_call_s=(last - loaded) / _GIGA if last else None,
        calls=tuple(_summed(row for block in blocks for row in block.rows())),
        longest=tuple(
            sorted((wait for block in blocks for wait in block.waits(rank, begin)), key=lambda wait: -wait.time_s)
        ),
        inside=tuple(block.inside(begin) for block in blocks if block.call_inside),
        each_thread=tuple(block.times() for block in blocks),
        bin_s=bin_s,
        bins=merged,
    )


class _Block:
    """The records of one thread."""

    def __init__(self, data: bytes, offset: int, shape: tuple[int, int, int], functions: list[tuple[str, ...]]) -> None:
        self.functions = functions
        entries, longest, bins = shape
        self.first, last, _, _, self.call_inside, self.since, self.bin_shift, _ = _BLOCK.unpack_from(data, offset)
        self.until = max(last, self.since if self.call_inside else 0)
        position = offset + _BLOCK.size
        self.entries = [_ENTRY.unpack_from(data, position + index * _ENTRY.size) for index in range(entries)]
        position += entries * _ENTRY.size
        self.longest = [_LONGEST.unpack_from(data, position + index * _LONGEST.size) for index in range(longest)]
        position += longest * _LONGEST.size
        self.bins = struct.unpack_from(f"={bins}Q", data, position)

    def call_of(self, key: int) -> tuple[str, str]:
        """Return kind and name of a call; functions for large counts (MPI_Send_c) count as the regular ones."""
        number = key >> 8
        if number == _OTHER_CALL:
            return "other", OTHERS
        kind, name = self.functions[number - 1]
        return kind, name.removesuffix("_c")

    def rows(self) -> Iterator[CallRow]:
        for key, calls, size_bytes, time, shortest, longest in self.entries:
            if key and calls:
                kind, name = self.call_of(key)
                size = (key & 0xFF) if key >> 8 != _OTHER_CALL else 0
                bounds = {0: (None, None), 1: (0, 1)}.get(size, (1 << max(size - 2, 0), 1 << max(size - 1, 0)))
                yield CallRow(
                    name, kind, *bounds, calls, size_bytes, time / _GIGA, min(shortest, time) / _GIGA, longest / _GIGA
                )

    def waits(self, rank: int, begin: int) -> Iterator[Wait]:
        for key, time, since, size_bytes, peer in self.longest:
            if key:
                size = None if size_bytes == _NONE else size_bytes
                at_s = (since - begin) / _GIGA
                yield Wait(self.call_of(key)[1], rank, size, peer if peer >= 0 else None, at_s, time / _GIGA)

    def times(self) -> ThreadTimes:
        calling = max(0, self.until - self.first) if self.first else 0
        return ThreadTimes(calling / _GIGA, sum(row.time_s for row in self.rows()))

    def inside(self, begin: int) -> Inside:
        return Inside(self.call_of(self.call_inside << 8)[1], (self.since - begin) / _GIGA)


def _summed(rows: Iterator[CallRow]) -> list[CallRow]:
    """Merge rows of several threads, and of a function and its large-count form; sorted by time, longest first."""
    merged: dict[tuple[str, int | None], CallRow] = {}
    for row in rows:
        key = row.call, row.bytes_from
        merged[key] = merged_row(merged[key], row) if key in merged else row
    return sorted(merged.values(), key=lambda row: -row.time_s)


def merged_row(first: CallRow, second: CallRow) -> CallRow:
    """Merge two rows of the same call and size."""
    return CallRow(
        first.call,
        first.kind,
        first.bytes_from,
        first.bytes_below,
        first.calls + second.calls,
        first.bytes + second.bytes,
        first.time_s + second.time_s,
        min(first.shortest_s, second.shortest_s),
        max(first.longest_s, second.longest_s),
    )


def _merged_bins(blocks: list[_Block]) -> tuple[float, tuple[float, ...]]:
    if not blocks:
        return 0.0, ()
    widest = max(block.bin_shift for block in blocks)
    sums = [0] * len(blocks[0].bins)
    for block in blocks:
        for index, value in enumerate(block.bins):
            sums[index >> (widest - block.bin_shift)] += value
    while sums and sums[-1] == 0:
        sums.pop()
    return (1 << widest) / _GIGA, tuple(value / _GIGA for value in sums)
