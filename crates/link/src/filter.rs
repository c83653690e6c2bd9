// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receive filters: a list of alternatives, compiled to a program that the kernel runs on each frame:
//! classic BPF here, eBPF for an interface's XDP hook in `xdp/program.rs`.

use crate::MacAddress;

/// A comparison of a masked field with a value.
///
/// Offsets count from the destination address. A VLAN tag is removed before the filter
/// runs, so offsets are the same with and without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    offset: u32,
    width: Width,
    mask: u32,
    value: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    One,
    Two,
    Four,
}

impl Field {
    /// One byte.
    #[must_use]
    pub const fn byte(offset: u32, value: u8) -> Self {
        Self { offset, width: Width::One, mask: 0xff, value: value as u32 }
    }

    /// Two bytes in network order.
    #[must_use]
    pub const fn word(offset: u32, value: u16) -> Self {
        Self { offset, width: Width::Two, mask: 0xffff, value: value as u32 }
    }

    /// Four bytes in network order.
    #[must_use]
    pub const fn long(offset: u32, value: u32) -> Self {
        Self { offset, width: Width::Four, mask: u32::MAX, value }
    }

    /// The same field, with only the bits of `mask` compared.
    #[must_use]
    pub const fn masked(self, mask: u32) -> Self {
        Self { mask: self.mask & mask, value: self.value & mask, ..self }
    }

    pub(crate) const fn offset(&self) -> u32 {
        self.offset
    }

    pub(crate) const fn width_bytes(&self) -> u32 {
        match self.width {
            Width::One => 1,
            Width::Two => 2,
            Width::Four => 4,
        }
    }

    /// The compared bits, or `None` if all are.
    pub(crate) fn partial_mask(&self) -> Option<u32> {
        (self.mask != full_mask(self.width)).then_some(self.mask)
    }

    pub(crate) const fn value(&self) -> u32 {
        self.value
    }

    const fn end(&self) -> u32 {
        self.offset + self.width_bytes()
    }
}

/// Accepts frames that match every field of at least one alternative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    alternatives: Vec<Vec<Field>>,
}

/// More fields would need longer conditional jumps than classic BPF has.
const FIELDS_MAX: usize = 16;
const ALTERNATIVES_MAX: usize = 64;

impl Filter {
    /// A filter with one alternative.
    #[must_use]
    pub fn all_of(fields: &[Field]) -> Self {
        Self::default().or_all_of(fields)
    }

    /// The same filter with one more alternative.
    ///
    /// # Panics
    /// With more than 16 fields or 64 alternatives.
    #[must_use]
    pub fn or_all_of(mut self, fields: &[Field]) -> Self {
        assert!(fields.len() <= FIELDS_MAX, "a filter's alternative has at most {FIELDS_MAX} fields");
        assert!(self.alternatives.len() < ALTERNATIVES_MAX, "a filter has at most {ALTERNATIVES_MAX} alternatives");
        self.alternatives.push(fields.to_vec());
        self
    }

    /// Each alternative's fields, and the frame length in bytes that they need.
    pub(crate) fn alternatives(&self) -> impl Iterator<Item = (&[Field], u32)> {
        self.alternatives.iter().map(|fields| (&fields[..], fields.iter().map(Field::end).max().unwrap_or(0)))
    }

    /// Compiles the filter: the program returns all bytes of a matching frame, none of another one.
    ///
    /// A load beyond the end of a frame makes a BPF program refuse it, even if a later
    /// alternative would match; so each alternative first checks the frame's length.
    pub(crate) fn compile(&self) -> Vec<libc::sock_filter> {
        let mut program = Vec::new();
        for (fields, needed_bytes) in self.alternatives() {
            let mut steps = vec![(vec![load_length()], JUMP_IF_AT_LEAST, needed_bytes)];
            steps.extend(fields.iter().map(|field| (load(field), JUMP_IF_EQUAL, field.value)));
            // Instructions left in this alternative: loads and jump of each step, and the return.
            let mut left = steps.iter().map(|(loads, ..)| loads.len() + 1).sum::<usize>() + 1;
            for (loads, jump, value) in steps {
                left -= loads.len() + 1;
                program.extend(loads);
                program.push(jump_else(jump, value, left));
            }
            program.push(instruction(libc::BPF_RET | libc::BPF_K, u32::MAX));
        }
        program.push(instruction(libc::BPF_RET | libc::BPF_K, 0));
        program
    }
}

const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JUMP_IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;

fn load_length() -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0)
}

fn load(field: &Field) -> Vec<libc::sock_filter> {
    let width = match field.width {
        Width::One => libc::BPF_B,
        Width::Two => libc::BPF_H,
        Width::Four => libc::BPF_W,
    };
    let mut loads = vec![instruction(libc::BPF_LD | width | libc::BPF_ABS, field.offset)];
    if let Some(mask) = field.partial_mask() {
        loads.push(instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask));
    }
    loads
}

/// Loads what the kernel knows of a frame: one of its `SKF_AD_` fields.
pub(crate) fn load_metadata(field: libc::c_int) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (libc::SKF_AD_OFF + field).cast_unsigned())
}

/// The start of a program: refuses frames to other hosts than `host`. Such frames arrive where a switch floods them and
/// the interface is virtual or in promiscuous mode. The kernel's own classification does not help: it counts frames
/// with the tag of a VLAN that has no interface here as another host's.
pub(crate) fn accept_only_to(host: MacAddress) -> Vec<libc::sock_filter> {
    let [first @ .., e, f] = host.0;
    vec![
        instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0),
        // To a group.
        libc::sock_filter { jt: 5, ..instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 1) },
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 2, ..instruction(JUMP_IF_EQUAL, u32::from_be_bytes(first)) },
        instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 4),
        libc::sock_filter { jt: 1, ..instruction(JUMP_IF_EQUAL, u16::from_be_bytes([e, f]).into()) },
        instruction(libc::BPF_RET | libc::BPF_K, 0),
    ]
}

const fn full_mask(width: Width) -> u32 {
    match width {
        Width::One => 0xff,
        Width::Two => 0xffff,
        Width::Four => u32::MAX,
    }
}

pub(crate) fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).expect("BPF codes have 16 bits"), jt: 0, jf: 0, k }
}

/// Continues if the comparison holds, else skips `skip` instructions.
fn jump_else(code: u32, value: u32, skip: usize) -> libc::sock_filter {
    let jf = u8::try_from(skip).expect("FIELDS_MAX keeps jumps short");
    libc::sock_filter { jf, ..instruction(code, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would: `true` if it accepts the frame.
    fn accepts(program: &[libc::sock_filter], frame: &[u8]) -> bool {
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let step = program[at];
            at += 1;
            let code = u32::from(step.code);
            let offset = step.k as usize;
            let bytes = |count: usize| {
                frame
                    .get(offset..offset + count)
                    .map(|b| b.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte)))
            };
            let loaded = match code {
                c if c == libc::BPF_RET | libc::BPF_K => return step.k != 0,
                c if c == libc::BPF_LD | libc::BPF_W | libc::BPF_LEN => Some(u32::try_from(frame.len()).unwrap()),
                c if c == libc::BPF_LD | libc::BPF_B | libc::BPF_ABS => bytes(1),
                c if c == libc::BPF_LD | libc::BPF_H | libc::BPF_ABS => bytes(2),
                c if c == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => bytes(4),
                c if c == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => Some(accumulator & step.k),
                c => {
                    let holds = match c {
                        JUMP_IF_EQUAL => accumulator == step.k,
                        JUMP_IF_AT_LEAST => accumulator >= step.k,
                        _ => panic!("unknown instruction {c:#x}"),
                    };
                    at += usize::from(if holds { step.jt } else { step.jf });
                    continue;
                }
            };
            let Some(value) = loaded else { return false };
            accumulator = value;
        }
    }

    fn frame(ether_type: u16, rest: &[u8]) -> Vec<u8> {
        [&[0; 12], &ether_type.to_be_bytes()[..], rest].concat()
    }

    #[test]
    fn frame_is_accepted_if_all_fields_of_an_alternative_match() {
        let program = Filter::all_of(&[Field::word(12, 0x88b5), Field::byte(17, 3)])
            .or_all_of(&[Field::word(12, 0x8870), Field::long(14, 0xdead_beef)])
            .compile();
        assert!(accepts(&program, &frame(0x88b5, &[0, 0, 0, 3])));
        assert!(!accepts(&program, &frame(0x88b5, &[0, 0, 0, 4])));
        assert!(accepts(&program, &frame(0x8870, &0xdead_beef_u32.to_be_bytes())));
        assert!(!accepts(&program, &frame(0x0800, &[0, 0, 0, 3])));
    }

    #[test]
    fn frame_too_short_for_one_alternative_can_match_the_next() {
        let program = Filter::all_of(&[Field::byte(1000, 0)]).or_all_of(&[Field::word(12, 0x88b5)]).compile();
        assert!(accepts(&program, &frame(0x88b5, &[])));
    }

    #[test]
    fn masked_field_ignores_other_bits() {
        let program = Filter::all_of(&[Field::byte(14, 0x04).masked(0xfe)]).compile();
        assert!(accepts(&program, &frame(0, &[0x04])) && accepts(&program, &frame(0, &[0x05])));
        assert!(!accepts(&program, &frame(0, &[0x06])));
    }

    #[test]
    fn filter_without_alternatives_accepts_nothing() {
        assert!(!accepts(&Filter::default().compile(), &frame(0x88b5, &[1, 2, 3])));
    }
}
