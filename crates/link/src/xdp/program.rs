// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program at an interface's XDP hook: redirects frames that match a [`Filter`] to a socket and passes all others
//! on to the kernel.
//!
//! Assembled here, since it has only some thirty instructions: see `docs/decisions/0005-xdp-by-hand.md`.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::MacAddress;
use crate::filter::{Field, Filter};
use crate::interface::owned;

/// An eBPF instruction in the kernel's format.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Destination in the lower four bits, source in the upper.
    registers: u8,
    offset: i16,
    value: i32,
}

// Operation codes: linux/bpf.h and linux/bpf_common.h, class | size or operation | mode or source.
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_MAP: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_VALUE: u8 = 0xb7;
const ADD_VALUE: u8 = 0x07;
const AND_VALUE: u8 = 0x54;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_IF_EQUAL: u8 = 0x16;
const JUMP_IF_NOT_EQUAL: u8 = 0x56;
const JUMP_IF_ABOVE: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `bpf_redirect_map`: redirects to the socket in the map's entry, or returns its third argument if there is none.
const REDIRECT_MAP: i32 = 51;
/// Source register of `LOAD_MAP` for a value that is a map's descriptor.
const MAP_DESCRIPTOR: u8 = 1;
const XDP_PASS: i32 = 2;

// Offsets of fields in `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;

// Registers: 0 is the result, 1 to 5 are arguments, 6 to 9 are preserved by calls.
const CONTEXT: u8 = 1;
const FRAME: u8 = 2;
const FRAME_END: u8 = 3;
const SCRATCH: u8 = 4;
const QUEUE: u8 = 6;

/// In the first byte of a group's address.
const GROUP_BIT: i32 = 1;
const ETHER_TYPE_OFFSET: i16 = 12;
const VLAN_TAG_BYTES: i16 = 4;
const VLAN_ETHER_TYPES: [u16; 2] = [0x8100, 0x88a8];

/// Targets of forward jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    ToThisHost,
    NextAlternative,
    Tagged,
    Redirect,
    Pass,
}

#[derive(Default)]
struct Assembler {
    program: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        self.program.push(Instruction { code, registers: to | from << 4, offset, value });
    }

    fn jump(&mut self, code: u8, to: u8, from: u8, value: i32, label: Label) {
        self.jumps.push((self.program.len(), label));
        self.push(code, to, from, 0, value);
    }

    /// Resolves all jumps to `label` so far to the next instruction.
    fn resolve(&mut self, label: Label) {
        let here = self.program.len();
        for (at, _) in self.jumps.extract_if(.., |(_, target)| *target == label) {
            self.program[at].offset = i16::try_from(here - at - 1).expect("a filter's bounds keep programs short");
        }
    }

    /// Jumps to `label` unless the frame has this many bytes.
    fn require_bytes(&mut self, bytes: i32, label: Label) {
        self.push(MOVE, SCRATCH, FRAME, 0, 0);
        self.push(ADD_VALUE, SCRATCH, 0, 0, bytes);
        self.jump(JUMP_IF_ABOVE, SCRATCH, FRAME_END, 0, label);
    }

    fn load_big_endian(&mut self, offset: i16, width_bytes: u32) {
        let code = match width_bytes {
            1 => LOAD_BYTE,
            2 => LOAD_HALF,
            _ => LOAD_WORD,
        };
        self.push(code, SCRATCH, FRAME, offset, 0);
        if width_bytes > 1 {
            self.push(TO_BIG_ENDIAN, SCRATCH, 0, 0, width_bytes as i32 * 8);
        }
    }

    fn pass(&mut self) {
        self.push(MOVE_VALUE, 0, 0, 0, XDP_PASS);
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// Redirects if an alternative matches. Fields after the addresses are shifted by `tag_bytes`.
    fn match_any(&mut self, filter: &Filter, tag_bytes: i16) {
        for (fields, needed_bytes) in filter.alternatives() {
            self.require_bytes(needed_bytes as i32 + i32::from(tag_bytes), Label::NextAlternative);
            for field in fields {
                self.match_field(field, tag_bytes);
            }
            self.jump(JUMP, 0, 0, 0, Label::Redirect);
            self.resolve(Label::NextAlternative);
        }
        self.jump(JUMP, 0, 0, 0, Label::Pass);
    }

    fn match_field(&mut self, field: &Field, tag_bytes: i16) {
        let offset = i16::try_from(field.offset()).expect("fields lie within a frame");
        let offset = if offset < ETHER_TYPE_OFFSET { offset } else { offset + tag_bytes };
        self.load_big_endian(offset, field.width_bytes());
        if let Some(mask) = field.partial_mask() {
            self.push(AND_VALUE, SCRATCH, 0, 0, mask.cast_signed());
        }
        self.jump(JUMP_IF_NOT_EQUAL, SCRATCH, 0, field.value().cast_signed(), Label::NextAlternative);
    }
}

/// Assembles the program for a filter, which ignores a VLAN tag as on the packet link. Frames to other hosts than
/// `host`, which a switch floods and a virtual or promiscuous interface receives, are passed on.
fn assemble(filter: &Filter, host: MacAddress, map: i32) -> Vec<Instruction> {
    let mut code = Assembler::default();
    if filter.alternatives().next().is_none() {
        // The kernel refuses programs with unreachable instructions.
        code.pass();
        return code.program;
    }
    code.push(LOAD_WORD, QUEUE, CONTEXT, CONTEXT_QUEUE, 0);
    code.push(LOAD_WORD, FRAME, CONTEXT, CONTEXT_DATA, 0);
    code.push(LOAD_WORD, FRAME_END, CONTEXT, CONTEXT_DATA_END, 0);
    code.require_bytes(crate::ETHERNET_HEADER_BYTES as i32, Label::Pass);
    code.load_big_endian(0, 1);
    code.push(AND_VALUE, SCRATCH, 0, 0, GROUP_BIT);
    code.jump(JUMP_IF_NOT_EQUAL, SCRATCH, 0, 0, Label::ToThisHost);
    for (offset, part) in host.0.chunks(2).enumerate() {
        code.load_big_endian(2 * offset as i16, 2);
        let part = i32::from(u16::from_be_bytes([part[0], part[1]]));
        code.jump(JUMP_IF_NOT_EQUAL, SCRATCH, 0, part, Label::Pass);
    }
    code.resolve(Label::ToThisHost);
    code.load_big_endian(ETHER_TYPE_OFFSET, 2);
    for ether_type in VLAN_ETHER_TYPES {
        code.jump(JUMP_IF_EQUAL, SCRATCH, 0, i32::from(ether_type), Label::Tagged);
    }
    code.match_any(filter, 0);
    code.resolve(Label::Tagged);
    code.match_any(filter, VLAN_TAG_BYTES);
    code.resolve(Label::Redirect);
    code.push(LOAD_MAP, 1, MAP_DESCRIPTOR, 0, map);
    code.push(0, 0, 0, 0, 0);
    code.push(MOVE, 2, QUEUE, 0, 0);
    code.push(MOVE_VALUE, 3, 0, 0, XDP_PASS);
    code.push(CALL, 0, 0, 0, REDIRECT_MAP);
    code.push(EXIT, 0, 0, 0, 0);
    code.resolve(Label::Pass);
    code.pass();
    debug_assert!(code.jumps.is_empty());
    code.program
}

/// Hook of a program; the values are the kernel's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// After the driver, in the kernel's common path; supported by every interface.
    Generic = 1 << 1,
    /// In the driver, before a socket buffer is allocated.
    Native = 1 << 2,
}

/// A loaded program and its map from queues to sockets.
pub(super) struct Program {
    program: OwnedFd,
    map: OwnedFd,
}

/// An attached program. The kernel detaches it when its last descriptor is closed, also if the process is killed.
pub(super) struct Attached {
    _link: OwnedFd,
    program: Program,
}

impl Program {
    /// Loads the program for a filter on the interface with the address `host`, without attaching it.
    pub(super) fn load(filter: &Filter, host: MacAddress, queues: u32) -> Result<Self, (&'static str, io::Error)> {
        let request = MapCreate { map_type: MAP_TYPE_SOCKETS, key_bytes: 4, value_bytes: 4, entries: queues, flags: 0 };
        let map = bpf(Command::MapCreate, &request).map_err(|error| ("bpf(MAP_CREATE)", error))?;
        let code = assemble(filter, host, map.as_raw_fd());
        let request = ProgramLoad {
            program_type: PROGRAM_TYPE_XDP,
            instructions: code.len() as u32,
            code: code.as_ptr() as u64,
            license: c"Apache-2.0 OR MIT".as_ptr() as u64,
            ..ProgramLoad::default()
        };
        let program = bpf(Command::ProgramLoad, &request).map_err(|error| ("bpf(PROG_LOAD)", error))?;
        Ok(Self { program, map })
    }

    /// Attaches the program to an interface.
    pub(super) fn attach(self, interface: i32, hook: Hook) -> Result<Attached, (Self, io::Error)> {
        let request = LinkCreate {
            program: self.program.as_raw_fd(),
            interface,
            attach_type: ATTACH_TYPE_XDP,
            flags: hook as u32,
        };
        match bpf(Command::LinkCreate, &request) {
            Ok(link) => Ok(Attached { _link: link, program: self }),
            Err(error) => Err((self, error)),
        }
    }
}

impl Attached {
    /// Redirects matching frames of `queue` to `socket` from now on.
    pub(super) fn redirect(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        let descriptor = socket.as_raw_fd();
        let request = MapUpdate {
            map: self.program.map.as_raw_fd(),
            _padding: 0,
            key: &raw const queue as u64,
            value: &raw const descriptor as u64,
            flags: 0,
        };
        bpf_call(Command::MapUpdate, &request).map(|_| ())
    }
}

// The used parts of `union bpf_attr`; the kernel treats missing bytes as zeros.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: i32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

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
}

#[repr(C)]
struct LinkCreate {
    program: i32,
    interface: i32,
    attach_type: u32,
    flags: u32,
}

const MAP_TYPE_SOCKETS: u32 = 17;
const PROGRAM_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;

#[derive(Clone, Copy)]
enum Command {
    MapCreate = 0,
    MapUpdate = 2,
    ProgramLoad = 5,
    LinkCreate = 28,
}

/// Runs a command that returns a descriptor, which has close-on-exec set.
fn bpf<T>(command: Command, request: &T) -> io::Result<OwnedFd> {
    owned(bpf_call(command, request)?)
}

fn bpf_call<T>(command: Command, request: &T) -> io::Result<i32> {
    // SAFETY: pointer and length describe `request`, one of the structures above; code, licence, key and value to which
    // it points outlive the call, and none of these commands writes to them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_long, request, mem::size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would. Returns the queue to which it redirects, or `None` if it passes the frame
    /// on.
    fn redirects(program: &[Instruction], frame: &[u8], queue: u64) -> Option<u64> {
        const FRAME_AT: u64 = 1 << 32;
        let (mut at, mut registers) = (0_usize, [0_u64; 11]);
        loop {
            let Instruction { code, registers: names, offset, value } = program[at];
            let (to, from) = (usize::from(names & 0xf), usize::from(names >> 4));
            let immediate = value as u64;
            at += 1;
            let load = |bytes: usize| {
                let start = usize::try_from(registers[from] - FRAME_AT).unwrap() + offset as usize;
                // The kernel's verifier would refuse a program that panics here.
                let read = &frame[start..start + bytes];
                read.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
            };
            let jumps = match code {
                LOAD_WORD if from == usize::from(CONTEXT) => {
                    registers[to] = match offset {
                        CONTEXT_DATA => FRAME_AT,
                        CONTEXT_DATA_END => FRAME_AT + frame.len() as u64,
                        CONTEXT_QUEUE => queue,
                        _ => panic!("no such field"),
                    };
                    false
                }
                LOAD_BYTE | LOAD_HALF | LOAD_WORD => {
                    let bytes = [(LOAD_BYTE, 1), (LOAD_HALF, 2), (LOAD_WORD, 4)];
                    registers[to] = load(bytes.iter().find(|(name, _)| *name == code).unwrap().1);
                    false
                }
                TO_BIG_ENDIAN => {
                    registers[to] = registers[to].swap_bytes() >> (64 - value);
                    false
                }
                MOVE => {
                    registers[to] = registers[from];
                    false
                }
                MOVE_VALUE => {
                    registers[to] = immediate;
                    false
                }
                ADD_VALUE => {
                    registers[to] += immediate;
                    false
                }
                AND_VALUE => {
                    registers[to] &= u64::from(value as u32);
                    false
                }
                LOAD_MAP => {
                    at += 1;
                    false
                }
                JUMP => true,
                JUMP_IF_EQUAL => registers[to] as u32 == value as u32,
                JUMP_IF_NOT_EQUAL => registers[to] as u32 != value as u32,
                JUMP_IF_ABOVE => registers[to] > registers[from],
                CALL => return (value == REDIRECT_MAP && registers[3] == XDP_PASS as u64).then_some(registers[2]),
                EXIT => return None,
                _ => panic!("unknown instruction {code:#x}"),
            };
            if jumps {
                at += usize::try_from(offset).expect("no loops");
            }
        }
    }

    const HOST: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);

    fn frame(ether_type: u16, rest: &[u8]) -> Vec<u8> {
        [&HOST.0[..], &HOST.0, &ether_type.to_be_bytes()[..], rest].concat()
    }

    fn filter() -> Filter {
        Filter::all_of(&[Field::word(12, 0x88b5), Field::byte(17, 3), Field::byte(5, 7)])
            .or_all_of(&[Field::word(12, 0x8870), Field::long(14, 0xdead_beef)])
            .or_all_of(&[Field::word(12, 0).masked(0xf800), Field::byte(14, 0x10).masked(0xfe)])
    }

    #[test]
    fn matching_frames_are_redirected_and_others_passed() {
        let program = assemble(&filter(), HOST, 0);
        for (ether_type, rest, wanted) in [
            (0x88b5, &[0, 0, 0, 3][..], true),
            (0x88b5, &[0, 0, 0, 4], false),
            (0x88b5, &[0, 0, 0], false),
            (0x8870, &[0xde, 0xad, 0xbe, 0xef], true),
            (0x8870, &[0xde, 0xad, 0xbe], false),
            (46, &[0x11, 0xff], true),
            (46, &[0x12, 0xff], false),
            (0x0800, &[0x10; 40], false),
            (46, &[], false),
        ] {
            let plain = frame(ether_type, rest);
            assert_eq!(redirects(&program, &plain, 5), wanted.then_some(5), "{ether_type:#x} {rest:?}");
            for tag in VLAN_ETHER_TYPES {
                let tagged = [&plain[..12], &tag.to_be_bytes(), &[0x60, 7], &plain[12..]].concat();
                assert_eq!(redirects(&program, &tagged, 5), wanted.then_some(5), "tagged {ether_type:#x} {rest:?}");
            }
        }
    }

    #[test]
    fn frames_to_other_hosts_are_passed_and_those_to_groups_redirected() {
        let filter = Filter::all_of(&[Field::word(12, 0x8870)]);
        let program = assemble(&filter, HOST, 0);
        for (destination, wanted) in [
            ([2, 0, 0, 0, 0, 7], true),
            ([2, 0, 0, 0, 0, 8], false),
            ([2, 0, 1, 0, 0, 7], false),
            ([6, 0, 0, 0, 0, 7], false),
            ([0xff; 6], true),
            ([3, 0, 0, 0, 0, 8], true),
        ] {
            let frame = [&destination[..], &frame(0x8870, &[4])[6..]].concat();
            assert_eq!(redirects(&program, &frame, 5).is_some(), wanted, "{destination:x?}");
        }
    }

    #[test]
    fn frames_shorter_than_a_header_are_passed() {
        for program in [assemble(&filter(), HOST, 0), assemble(&Filter::default(), HOST, 0)] {
            assert!((0..14).all(|bytes| redirects(&program, &vec![7; bytes], 0).is_none()));
        }
    }

    #[test]
    fn largest_filter_fits_the_range_of_jumps() {
        let fields = [Field::long(60, 1).masked(0xff00); 16];
        let largest = (0..64).fold(Filter::default(), |filter, _| filter.or_all_of(&fields));
        assert!(assemble(&largest, HOST, 0).len() < 10_000);
    }
}
