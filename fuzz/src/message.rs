// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fragmentation of messages, and reassembly of arbitrary fragments.

use barewire_llc::message::{BadFragment, FIRST_HEADER, Fragmenter, Progress, Reassembler};

use crate::input::Input;

/// Longest message: room for several fragments, and cheap to copy.
const BUFFER: usize = 48;

/// Any fragment is placed as in a naive model, or refused without effect. A fragmented message is reassembled; any length
/// and room can be fragmented.
pub fn message(data: &[u8]) {
    let mut input = Input::new(data);
    let (mut reassembler, mut buffer, mut model) = (Reassembler::new(), [0; BUFFER], None);
    while !input.is_empty() {
        match input.byte() {
            // An arbitrary fragment.
            choice @ 0..=0x7f => {
                let fragment = input.take(usize::from(choice & 0x1f));
                _ = place_checked(&mut reassembler, &mut buffer, &mut model, fragment);
            }
            // A complete message, unless another one is in progress.
            0x80..=0xdf => {
                let room = FIRST_HEADER as u32 + 1 + u32::from(input.byte());
                let length = usize::from(input.byte());
                let message = input.take(length.min(BUFFER));
                if model.is_none() {
                    for cut in cut(message.len() as u32, room) {
                        let fragment = [cut.header(), &message[cut.start as usize..cut.end as usize]].concat();
                        assert!(fragment.len() as u32 <= room);
                        assert!(place_checked(&mut reassembler, &mut buffer, &mut model, &fragment).is_ok());
                    }
                    assert_eq!((&buffer[..message.len()], model.is_none()), (message, true));
                }
            }
            _ => {
                let mut number = || u32::from_be_bytes([input.byte(), input.byte(), input.byte(), input.byte()]);
                let (total, room) = (number(), number());
                assert_eq!(Fragmenter::new(total, room).is_some(), room as usize > FIRST_HEADER);
                if room as usize > FIRST_HEADER {
                    cut(total, room);
                }
            }
        }
    }
}

/// Up to 1000 fragments of a message, each checked.
fn cut(total: u32, room: u32) -> Vec<barewire_llc::message::Fragment> {
    let Some(fragmenter) = Fragmenter::new(total, room) else { panic!("{room} bytes leave no room") };
    let (mut end, mut fragments) = (0, Vec::new());
    for fragment in fragmenter.take(1000) {
        let length = fragment.end - fragment.start;
        assert_eq!(fragment.start, end, "a gap, or an overlap");
        assert!(fragment.header().len() as u64 + u64::from(length) <= u64::from(room));
        assert!(length > 0 || total == 0, "a fragment without data");
        end = fragment.end;
        fragments.push(fragment);
    }
    assert!(end == total || fragments.len() == 1000);
    fragments
}

/// Total length and data so far of the message in progress.
type Model = Option<(usize, Vec<u8>)>;

fn place_checked(
    reassembler: &mut Reassembler,
    buffer: &mut [u8; BUFFER],
    model: &mut Model,
    fragment: &[u8],
) -> Result<Progress, BadFragment> {
    let before = (*reassembler, *buffer);
    let result = reassembler.place(fragment, buffer);
    match (result, expected(model.as_ref(), fragment)) {
        (Ok(progress), Ok((total, data))) => {
            assert_eq!(buffer[..data.len()], data);
            // Callers rely on this: nothing beyond the message is changed.
            assert_eq!(buffer[data.len()..], before.1[data.len()..]);
            let is_complete = data.len() == total;
            let length = data.len() as u32;
            let wanted = if is_complete { Progress::Complete(length) } else { Progress::Partial(length) };
            assert_eq!(progress, wanted);
            *model = (!is_complete).then_some((total, data));
        }
        (Err(reason), Err(wanted)) => {
            assert_eq!(reason, wanted, "{fragment:02x?}");
            assert_eq!((*reassembler, *buffer), before, "a refused fragment changed something");
        }
        (result, wanted) => panic!("{fragment:02x?} is {result:?}, not {wanted:?}"),
    }
    result
}

/// A naive implementation of the layout in the module's documentation.
fn expected(in_progress: Option<&(usize, Vec<u8>)>, fragment: &[u8]) -> Result<(usize, Vec<u8>), BadFragment> {
    let Some((flags, rest)) = fragment.split_first() else { return Err(BadFragment::Malformed) };
    let (is_first, is_last) = (flags & 1 != 0, flags & 2 != 0);
    let (total, mut data, new) = match in_progress {
        Some(_) if is_first => return Err(BadFragment::UnexpectedFirst),
        None if !is_first => return Err(BadFragment::MissingFirst),
        None if rest.len() < 4 => return Err(BadFragment::Malformed),
        None => {
            let total = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
            if total as usize > BUFFER {
                return Err(BadFragment::TooLong { total });
            }
            (total as usize, Vec::new(), &rest[4..])
        }
        Some((total, data)) => (*total, data.clone(), rest),
    };
    // Only an empty message has a fragment without data.
    if new.is_empty() && total > 0 {
        return Err(BadFragment::WrongLength);
    }
    data.extend(new);
    if data.len() > total || is_last != (data.len() == total) {
        return Err(BadFragment::WrongLength);
    }
    Ok((total, data))
}
