// SPDX-License-Identifier: Apache-2.0 OR MIT
//! eBPF programs: assembled by hand, since they are short (`docs/decisions/0005-xdp-by-hand.md`), and loaded.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use crate::interface::owned;

/// An eBPF instruction in the kernel's format.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the lower four bits, source in the upper.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) value: i32,
}

// Operation codes: linux/bpf.h and linux/bpf_common.h, class | size or operation | mode or source.
pub(crate) const LOAD_BYTE: u8 = 0x71;
pub(crate) const LOAD_HALF: u8 = 0x69;
pub(crate) const LOAD_WORD: u8 = 0x61;
pub(crate) const LOAD_LONG: u8 = 0x79;
pub(crate) const LOAD_MAP: u8 = 0x18;
pub(crate) const STORE_WORD: u8 = 0x63;
pub(crate) const MOVE: u8 = 0xbf;
pub(crate) const MOVE_VALUE: u8 = 0xb7;
pub(crate) const ADD_VALUE: u8 = 0x07;
pub(crate) const AND_VALUE: u8 = 0x54;
pub(crate) const MULTIPLY: u8 = 0x2f;
pub(crate) const TO_BIG_ENDIAN: u8 = 0xdc;
pub(crate) const JUMP: u8 = 0x05;
pub(crate) const JUMP_IF_EQUAL: u8 = 0x16;
pub(crate) const JUMP_IF_NOT_EQUAL: u8 = 0x56;
pub(crate) const JUMP_IF_ABOVE: u8 = 0x2d;
pub(crate) const JUMP_IF_ABOVE_VALUE: u8 = 0x25;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;

/// Register of a program's argument, its context. Register 0 is the result, 1 to 5 are arguments of calls, 6 to 9 are
/// preserved by them.
pub(crate) const CONTEXT: u8 = 1;

/// A program with forward jumps to labels.
pub(crate) struct Assembler<Label> {
    pub(crate) program: Vec<Instruction>,
    pub(crate) jumps: Vec<(usize, Label)>,
}

impl<Label> Default for Assembler<Label> {
    fn default() -> Self {
        Self { program: vec![], jumps: vec![] }
    }
}

impl<Label: PartialEq> Assembler<Label> {
    pub(crate) fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        self.program.push(Instruction { code, registers: to | from << 4, offset, value });
    }

    pub(crate) fn jump(&mut self, code: u8, to: u8, from: u8, value: i32, label: Label) {
        self.jumps.push((self.program.len(), label));
        self.push(code, to, from, 0, value);
    }

    /// Resolves all jumps to `label` so far to the next instruction.
    pub(crate) fn resolve(&mut self, label: Label) {
        let here = self.program.len();
        for (at, _) in self.jumps.extract_if(.., |(_, target)| *target == label) {
            self.program[at].offset = i16::try_from(here - at - 1).expect("programs are short");
        }
    }

    /// Ends the program with this result.
    pub(crate) fn exit(&mut self, result: i32) {
        self.push(MOVE_VALUE, 0, 0, 0, result);
        self.push(EXIT, 0, 0, 0, 0);
    }
}

// The used parts of `union bpf_attr`; the kernel treats missing bytes as zeros.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    program_type: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// The target is an interface's index, or a descriptor.
#[repr(C)]
pub(crate) struct LinkCreate {
    pub(crate) program: i32,
    pub(crate) target: i32,
    pub(crate) attach_type: u32,
    pub(crate) flags: u32,
}

#[derive(Clone, Copy)]
pub(crate) enum Command {
    MapCreate = 0,
    MapUpdate = 2,
    ProgramLoad = 5,
    ProgramAttach = 8,
    LinkCreate = 28,
}

/// Loads a program of this type, for this attach type.
pub(crate) fn load(program_type: u32, attach_type: u32, code: &[Instruction]) -> io::Result<OwnedFd> {
    let request = ProgramLoad {
        program_type,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        license: c"Apache-2.0 OR MIT".as_ptr() as u64,
        name: *b"barewire\0\0\0\0\0\0\0\0",
        attach_type,
        ..ProgramLoad::default()
    };
    // SAFETY: code and licence outlive the call.
    unsafe { bpf(Command::ProgramLoad, &request) }
}

/// Runs a command that returns a descriptor, which has close-on-exec set.
///
/// # Safety
/// As [`bpf_call`].
pub(crate) unsafe fn bpf<T>(command: Command, request: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's.
    owned(unsafe { bpf_call(command, request) }?)
}

/// # Safety
/// `request` must be the command's part of `union bpf_attr`, and what it points to must be valid.
pub(crate) unsafe fn bpf_call<T>(command: Command, request: &T) -> io::Result<i32> {
    // SAFETY: pointer and length describe `request`; the rest is the caller's. None of these commands writes.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_long, request, mem::size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
