# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Profiles in the profiler's format, made by hand after mpi/profiler/layout.h."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

ENTRIES, LONGEST, BINS = 512, 16, 256
NAMES = (("send", "MPI_Send"), ("receive", "MPI_Recv"), ("collective", "MPI_Barrier"), ("send", "MPI_Send_c"))
SEND, RECEIVE, BARRIER, SEND_C = range(1, 5)
LOADED = 10**12
MS = 10**6


@dataclass
class Made:
    """One process: entries are (call, size class, calls, bytes, time, shortest, longest), all times in ns."""

    rank: int = 0
    entries: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)
    longest: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    bins: list[int] = field(default_factory=list)
    bin_shift: int = 20
    finalised: bool = True
    main_ms: int = 1000
    inside: tuple[int, int] = (0, 0)
    blocks: int = 1
    # Of blocks after the first: how long after the first call the last one ended.
    others_ms: int = 1000

    def data(self) -> bytes:
        """Return the file's content."""
        begin = LOADED + 5 * MS
        ends = (begin + 10 * MS, begin + (10 + self.main_ms) * MS, begin + (12 + self.main_ms) * MS)
        end_times = (ends[1], ends[2], ends[2] + MS) if self.finalised else (0, 0, 0)
        block_bytes = 8 * 8 + ENTRIES * 48 + LONGEST * 40 + BINS * 8
        offset = 1160 + 52 * len(NAMES)
        header = struct.pack(
            "=8s6I6i2I9Q256s256s256s256s",
            *(b"bwprof3\0", len(NAMES), offset, block_bytes, ENTRIES, LONGEST, BINS),
            *(self.rank, 2, 77, 0, 0, 0, 80_000, 0),
            *(1 if self.finalised else 0, self.blocks, 0, LOADED, begin, ends[0], *end_times),
            *(b"h1", b"./program", b"Some MPI 1.0", b""),
        )
        names = b"".join(struct.pack("=12s40s", kind.encode(), name.encode()) for kind, name in NAMES)
        lasts = (begin + self.others_ms * MS if number else ends[1] for number in range(self.blocks))
        return header + names + b"".join(self._block(begin, last) for last in lasts)

    def leave_in(self, folder: Path) -> None:
        """Write the file under the profiler's name."""
        (folder / f"h1.77.{self.rank}.rank").write_bytes(self.data())

    def _block(self, begin: int, last: int) -> bytes:
        call, since = self.inside
        head = struct.pack("=8Q", begin, last if self.finalised else begin, 0, 0, call, since, self.bin_shift, 0)
        rows = [struct.pack("=6Q", call << 8 | size, *rest) for call, size, *rest in self.entries]
        waits = [struct.pack("=4Qq", call << 8 | size, *rest) for call, size, *rest in self.longest]
        bins = self.bins + [0] * (BINS - len(self.bins))
        return (
            head
            + b"".join(rows).ljust(ENTRIES * 48, b"\0")
            + b"".join(waits).ljust(LONGEST * 40, b"\0")
            + struct.pack(f"={BINS}Q", *bins)
        )
