// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The source ports of a link: which one a frame leaves from, and the frames of each together.

use super::SEGMENTS_MAX;
use crate::{LinkError, Outgoing, PORT_LABEL};

/// Sends the frames of each source port together, so that the kernel can cut them from one piece. `send` returns how many
/// of the frames that it gets are sent, and this, how many of the first frames are; some of the others may be, too.
pub(super) fn by_source(
    frames: &[Outgoing<'_>],
    last: usize,
    mut send: impl FnMut(&[Outgoing<'_>]) -> Result<usize, LinkError>,
) -> Result<usize, LinkError> {
    let mut accepted = frames.len();
    for source in 0..=last {
        let mut places = (0..accepted).filter(|place| source_of(&frames[*place], last) == source).peekable();
        while places.peek().is_some_and(|place| *place < accepted) {
            let (mut together, mut at) = ([Outgoing::default(); SEGMENTS_MAX], [0; SEGMENTS_MAX]);
            let mut count = 0;
            for place in places.by_ref().take(SEGMENTS_MAX) {
                (together[count], at[count]) = (frames[place], place);
                count += 1;
            }
            let sent = send(&together[..count])?;
            if sent < count {
                accepted = at[sent];
            }
        }
    }
    Ok(accepted)
}

/// The number of the port from which a frame leaves; `last` is the largest one.
#[inline]
pub(super) const fn source_of(frame: &Outgoing<'_>, last: usize) -> usize {
    if frame.label < PORT_LABEL { 0 } else { frame.label as usize & last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_port_has_no_room_all_frames_before_that_are_sent() {
        let payloads: Vec<[u8; 2]> = (0..300_u16).map(u16::to_be_bytes).collect();
        let frame = |number: u16| Outgoing {
            header: &[0; 14],
            payload: &payloads[usize::from(number)],
            label: PORT_LABEL + number % 4,
        };
        let frames: Vec<Outgoing<'_>> = (0..300).map(frame).collect();
        for room in 0..80 {
            let (mut sent, mut left) = (Vec::new(), room);
            let accepted = by_source(&frames, 3, |together| {
                let is_limited = together[0].label == PORT_LABEL + 1;
                let count = if is_limited { together.len().min(left) } else { together.len() };
                left -= if is_limited { count } else { 0 };
                sent.extend(together[..count].iter().map(|frame| frame.payload.to_vec()));
                Ok(count)
            });
            // Of port 1, 75 frames in all.
            let expected = if room < 75 { 4 * room + 1 } else { 300 };
            assert_eq!(accepted.unwrap(), expected, "room for {room}");
            assert!(payloads[..expected].iter().all(|payload| sent.contains(&payload.to_vec())), "room for {room}");
        }
    }
}
