# SPDX-License-Identifier: Apache-2.0 OR MIT
"""bpf(2): maps, and programs of some dozen instructions that are assembled here, without a compiler or libbpf."""

import ctypes
import os
import platform
import struct
from collections.abc import Sequence
from enum import IntEnum

# linux/bpf.h: commands, map types, the program type of traffic control
_MAP_CREATE, _PROG_LOAD, _BTF_LOAD = 0, 5, 18
ARRAY, PER_CPU_ARRAY = 2, 6
_SCHED_CLS = 3
_SYSCALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_LICENCE = b"Dual MIT/GPL\0"
_LOG_BYTES = 1 << 18

# linux/bpf.h and linux/bpf_common.h: operation codes
_ALU64, _JUMP, _REGISTER = 0x07, 0x05, 0x08
_LOAD_32, _LOAD_64, _STORE_32, _STORE_64, _ATOMIC_64, _LOAD_CONSTANT = 0x61, 0x79, 0x63, 0x7B, 0xDB, 0x18
_CALL, _EXIT = 0x85, 0x95
_OPERATIONS = {"+": 0, "-": 0x10, "*": 0x20, "/": 0x30, "|": 0x40, "&": 0x50, "<<": 0x60, ">>": 0x70, "=": 0xB0}
_CONDITIONS = {"==": 0x10, ">": 0x20, ">=": 0x30, "&": 0x40, "!=": 0x50, "<": 0xA0, "<=": 0xB0}
_SIGNED = {"s>": 0x60, "s<": 0xC0, "s<=": 0xD0}
_ADD, _FETCH_ADD, _COMPARE_AND_EXCHANGE = 0, 1, 0xF1
_FROM_MAP, _FROM_FUNCTION = 1, 4

_BTF_HEADER = struct.Struct("=HBBIIIII")
_BTF_INTEGER, _BTF_FUNCTION, _BTF_PROTOTYPE = 1 << 24, 12 << 24, 13 << 24


class Register(IntEnum):
    """R0 is a call's result, R1 to R5 are its arguments and are lost by it, R6 to R9 are kept, R10 is the stack."""

    R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = range(11)


class Helper(IntEnum):
    """The kernel's functions (linux/bpf.h)."""

    MAP_LOOKUP = 1
    CLOCK_NS = 5
    PROCESSOR = 8
    CLONE_REDIRECT = 13
    REDIRECT = 23
    SKB_CHANGE_TAIL = 38
    REDIRECT_PEER = 155
    LOOP = 181


Operand = Register | int


class Assembler:
    """A program under construction. Operands are registers, or numbers of 32 bits with their sign."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._code: list[tuple[int, int, int, int, int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []
        self._pointers: list[tuple[int, str]] = []

    def compute(self, target: Register, operation: str, operand: Operand) -> None:
        """Compute `target = target operation operand` in 64 bits; `=` copies."""
        code = _ALU64 | _OPERATIONS[operation]
        if isinstance(operand, Register):
            self._emit(code | _REGISTER, target, operand)
        else:
            self._emit(code, target, value=operand)

    def constant(self, target: Register, value: int) -> None:
        """Set a register to a number of 64 bits."""
        self._wide(target, 0, value & 0xFFFF_FFFF, value >> 32)

    def map(self, target: Register, descriptor: int) -> None:
        """Set a register to a map."""
        self._wide(target, _FROM_MAP, descriptor, 0)

    def function(self, target: Register, label: str) -> None:
        """Set a register to the function at a label, for a helper that calls it."""
        self._pointers.append((len(self._code), label))
        self._wide(target, _FROM_FUNCTION, 0, 0)

    def load(self, target: Register, base: Register, offset: int, *, bits: int = 64) -> None:
        """Load 32 or 64 bits from memory."""
        self._emit(_LOAD_64 if bits == 64 else _LOAD_32, target, base, offset)

    def store(self, base: Register, offset: int, source: Register, *, bits: int = 64) -> None:
        """Store 32 or 64 bits to memory."""
        self._emit(_STORE_64 if bits == 64 else _STORE_32, base, source, offset)

    def atomic_add(self, base: Register, offset: int, source: Register, *, fetch: bool = False) -> None:
        """Add to 64 bits of memory; with `fetch` the source becomes the previous value."""
        self._emit(_ATOMIC_64, base, source, offset, _FETCH_ADD if fetch else _ADD)

    def compare_and_exchange(self, base: Register, offset: int, source: Register) -> None:
        """Store the source if memory equals R0; R0 becomes the previous value."""
        self._emit(_ATOMIC_64, base, source, offset, _COMPARE_AND_EXCHANGE)

    def jump(self, label: str) -> None:
        """Jump always."""
        self._jumps.append((len(self._code), label))
        self._emit(_JUMP)

    def jump_if(self, left: Register, condition: str, right: Operand, label: str) -> None:
        """Jump if a comparison holds; with a leading s it is signed, `&` tests bits."""
        self._jumps.append((len(self._code), label))
        code = _JUMP | (_CONDITIONS | _SIGNED)[condition]
        if isinstance(right, Register):
            self._emit(code | _REGISTER, left, right)
        else:
            self._emit(code, left, value=right)

    def label(self, name: str) -> None:
        """Name the next instruction."""
        assert name not in self._labels, name
        self._labels[name] = len(self._code)

    def call(self, helper: Helper) -> None:
        """Call one of the kernel's functions."""
        self._emit(_CALL, value=helper)

    def exit(self) -> None:
        """Return R0."""
        self._emit(_EXIT)

    def functions(self) -> list[int]:
        """Return where functions begin, the main one first."""
        return sorted({0, *(self._labels[label] for _, label in self._pointers)})

    def program(self) -> bytes:
        """Return the instructions."""
        code = list(self._code)
        for at, label in self._jumps:
            operation, target, source, _, value = code[at]
            code[at] = (operation, target, source, self._labels[label] - at - 1, value)
        for at, label in self._pointers:
            operation, target, source, offset, _ = code[at]
            code[at] = (operation, target, source, offset, self._labels[label] - at - 1)
        return b"".join(
            struct.pack("=BBhi", operation, target | source << 4, offset, value)
            for operation, target, source, offset, value in code
        )

    def _wide(self, target: Register, source: int, low: int, high: int) -> None:
        for operation, register, half in ((_LOAD_CONSTANT, target, low), (0, 0, high)):
            signed = half - (half >> 31 << 32)
            self._emit(operation, register, source if operation else 0, value=signed)

    def _emit(self, operation: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> None:
        self._code.append((operation, int(target), int(source), offset, int(value)))


def create_map(kind: int, value_bytes: int, entries: int) -> int:
    """Create a map with 32-bit keys; return its descriptor."""
    return _bpf(_MAP_CREATE, struct.pack("=IIII", kind, 4, value_bytes, entries), "a map")


def load_program(assembler: Assembler) -> int:
    """Load a program for traffic control; return its descriptor. OSError with the verifier's last words if refused."""
    functions = assembler.functions()
    code = ctypes.create_string_buffer(assembler.program(), len(assembler.program()))
    licence = ctypes.create_string_buffer(_LICENCE)
    types = _load_types(len(functions)) if len(functions) > 1 else None
    # struct bpf_func_info: first instruction, type; the types' numbers are those of `_types`
    described = b"".join(struct.pack("=II", at, 3 + number) for number, at in enumerate(functions))
    information = ctypes.create_string_buffer(described, len(described))
    log = ctypes.create_string_buffer(_LOG_BYTES)

    def attributes(log_level: int) -> bytes:
        logging = (1, _LOG_BYTES, ctypes.addressof(log)) if log_level else (0, 0, 0)
        start = struct.pack("=IIQQ", _SCHED_CLS, len(code) // 8, ctypes.addressof(code), ctypes.addressof(licence))
        # Up to the descriptor of the types: version, flags, name, device, expected attachment
        start += struct.pack("=IIQII16xII", *logging, 0, 0, 0, 0)
        if types is None:
            return start
        return start + struct.pack("=IIQI", types, 8, ctypes.addressof(information), len(functions))

    try:
        return _bpf(_PROG_LOAD, attributes(0), "a program")
    except PermissionError:
        raise
    except OSError:
        try:
            return _bpf(_PROG_LOAD, attributes(1), "a program")
        except OSError as error:
            words = log.value.decode(errors="replace").strip().splitlines()
            raise OSError(error.errno, f"{error.strerror}: {'; '.join(words[-3:])}") from error
    finally:
        if types is not None:
            os.close(types)


def _load_types(functions: int) -> int:
    """Load the type information without which no helper calls a function."""
    blob = ctypes.create_string_buffer(_types(functions))
    attributes = struct.pack("=QQII", ctypes.addressof(blob), 0, len(blob) - 1, 0)
    return _bpf(_BTF_LOAD, attributes, "type information")


def _types(functions: int) -> bytes:
    """Return BTF: int, int(void), and static functions of that type, the first of which is number 3."""
    names = [b"int", *(b"function%d" % number for number in range(functions))]
    strings, places = b"\0", []
    for name in names:
        places.append(len(strings))
        strings += name + b"\0"
    types = struct.pack("=IIII", places[0], _BTF_INTEGER, 4, 1 << 24 | 32)
    types += struct.pack("=III", 0, _BTF_PROTOTYPE, 1)
    types += b"".join(struct.pack("=III", place, _BTF_FUNCTION, 2) for place in places[1:])
    header = _BTF_HEADER.pack(0xEB9F, 1, 0, _BTF_HEADER.size, 0, len(types), len(types), len(strings))
    return header + types + strings


def _bpf(command: int, attributes: bytes, what: str) -> int:
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(0, f"the number of bpf(2) on {platform.machine()} is not known here")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, command, buffer, len(attributes)))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf(2) refuses {what}: {os.strerror(error)}")
    return result


def close_all(descriptors: Sequence[int]) -> None:
    """Close maps and programs; what is attached stays."""
    for descriptor in descriptors:
        os.close(descriptor)
