# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A machine for the lab's BPF programs: their instructions, a clock, maps, frames, and a token bucket for the queue."""

import struct
from dataclasses import dataclass, field

from barewire.lab.bpf import Assembler, Helper

_MASK = (1 << 64) - 1
# Addresses: a region's number in the upper half.
_CONTEXT, _STACK, _MAP = 1 << 32, 2 << 32, 3 << 32
_STACK_BYTES = 512
CLOCK_STEP_NS = 20


@dataclass
class Frame:
    """What a program sees of a frame, and where it went."""

    length: int
    mark: int = 0


@dataclass
class Machine:
    """Runs programs; maps are lists of entries by descriptor. `redirected` is the interface that a program chose."""

    maps: dict[int, list[bytearray]]
    now_ns: int = 10**9
    processor: int = 0
    redirected: int | None = None
    clones: list[int] = field(default_factory=list)

    def run(self, program: Assembler, frame: Frame) -> int:
        """Return the program's verdict, with its sign."""
        code = list(struct.iter_unpack("=BBhi", program.program()))
        self.redirected, self.clones = None, []
        self._context = bytearray(192)
        struct.pack_into("=I", self._context, 0, frame.length)
        struct.pack_into("=I", self._context, 8, frame.mark)
        self._stack = bytearray(_STACK_BYTES)
        result = self._execute(code, 0, [0, _CONTEXT, *[0] * 8, _STACK + _STACK_BYTES])
        frame.mark = struct.unpack_from("=I", self._context, 8)[0]
        return _signed(result & 0xFFFF_FFFF, 32)

    def _execute(self, code: list[tuple[int, int, int, int]], at: int, registers: list[int]) -> int:
        while True:
            operation, names, offset, value = code[at]
            target, source = names & 15, names >> 4
            kind = operation & 7
            at += 1
            if operation == 0x95:
                return registers[0]
            if operation == 0x85:
                registers[0] = self._call(code, Helper(value), registers) & _MASK
            elif operation == 0x18:
                high = code[at][3] & 0xFFFF_FFFF
                registers[target] = (value & 0xFFFF_FFFF) | high << 32
                if source == 4:
                    registers[target] = at + value  # where the function begins
                at += 1
            elif kind == 7:
                right = registers[source] if operation & 8 else value & _MASK
                registers[target] = _compute(operation & 0xF0, registers[target], right)
            elif kind == 5:
                right = registers[source] if operation & 8 else value & _MASK
                if operation & 0xF0 == 0 or _holds(operation & 0xF0, registers[target], right):
                    at += offset
            elif operation in (0x61, 0x79):
                registers[target] = self._load(registers[source] + offset, 4 if operation == 0x61 else 8)
            elif operation in (0x63, 0x7B):
                self._store(registers[target] + offset, registers[source], 4 if operation == 0x63 else 8)
            else:
                assert operation == 0xDB
                self._change(registers, registers[target] + offset, source, value)

    def _change(self, registers: list[int], address: int, source: int, value: int) -> None:
        previous = self._load(address, 8)
        if value == 0xF1:
            if previous == registers[0]:
                self._store(address, registers[source], 8)
            registers[0] = previous
        else:
            self._store(address, previous + registers[source], 8)
            if value == 1:
                registers[source] = previous

    def _call(self, code: list[tuple[int, int, int, int]], helper: Helper, registers: list[int]) -> int:
        first, second, third = registers[1:4]
        if helper is Helper.CLOCK_NS:
            self.now_ns += CLOCK_STEP_NS
            return self.now_ns
        if helper is Helper.PROCESSOR:
            return self.processor
        if helper is Helper.MAP_LOOKUP:
            return _MAP + (first << 16) + (self._load(second, 4) << 8)
        if helper is Helper.CLONE_REDIRECT:
            self.clones.append(self._load(_CONTEXT + 8, 4))
            return 0
        if helper is Helper.LOOP:
            for number in range(first):
                if self._execute(code, second, [0, number, third, *[0] * 7, _STACK]):
                    return number
            raise AssertionError("a loop without an end")
        assert helper in (Helper.REDIRECT, Helper.REDIRECT_PEER)
        self.redirected = first
        return 7  # TC_ACT_REDIRECT

    def _load(self, address: int, size: int) -> int:
        memory, offset = self._place(address)
        return int.from_bytes(memory[offset : offset + size], "little")

    def _store(self, address: int, value: int, size: int) -> None:
        memory, offset = self._place(address)
        memory[offset : offset + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def _place(self, address: int) -> tuple[bytearray, int]:
        region, offset = address & ~0xFFFF_FFFF, address & 0xFFFF_FFFF
        if region == _CONTEXT:
            return self._context, offset
        if region == _STACK:
            return self._stack, offset
        assert region == _MAP
        return self.maps[offset >> 16][offset >> 8 & 0xFF], offset & 0xFF


@dataclass
class Bucket:
    """A token bucket that starts full: the kernel's tbf, with an ideal timer."""

    rate_byte_ns: float
    size_bytes: int
    free_at_ns: float = 0.0
    tokens: float = 0.0

    def passes_at(self, now_ns: float, wire_bytes: int) -> float:
        """Return when something that comes now passes."""
        at = max(now_ns, self.free_at_ns)
        tokens = min(self.size_bytes, self.tokens + (at - self.free_at_ns) * self.rate_byte_ns)
        wait_ns = max(0.0, (wire_bytes - tokens) / self.rate_byte_ns)
        self.free_at_ns = at + wait_ns
        self.tokens = tokens + wait_ns * self.rate_byte_ns - wire_bytes
        return self.free_at_ns


def _compute(operation: int, left: int, right: int) -> int:
    results = {
        0x00: lambda: left + right,
        0x10: lambda: left - right,
        0x20: lambda: left * right,
        0x30: lambda: left // right,
        0x40: lambda: left | right,
        0x50: lambda: left & right,
        0x60: lambda: left << right,
        0x70: lambda: left >> right,
        0xB0: lambda: right,
    }
    return results[operation]() & _MASK


def _holds(condition: int, left: int, right: int) -> bool:
    results = {
        0x10: left == right,
        0x20: left > right,
        0x30: left >= right,
        0x40: left & right != 0,
        0x50: left != right,
        0x60: _signed(left, 64) > _signed(right, 64),
        0xA0: left < right,
        0xB0: left <= right,
        0xC0: _signed(left, 64) < _signed(right, 64),
        0xD0: _signed(left, 64) <= _signed(right, 64),
    }
    return results[condition]


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value
