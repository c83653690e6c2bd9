// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is added to PDUs, of frames that anybody can have sent: before it is known who did.

use barewire_llc::extension::{checked, covered, sealed};

/// The parts of any frame, sealed or checked, are the frame: nothing twice, nothing left out but padding.
pub fn extension(data: &[u8]) {
    let Some((&cut, frame)) = data.split_first() else { return };
    let (llc, behind) = frame.split_at(frame.len().min(cut.into()));
    if let Some(sealed) = sealed(llc, behind) {
        let seal = [&sealed.counter.to_be_bytes()[..], &sealed.tag].concat();
        let added = [&seal, sealed.extension].concat();
        if sealed.has_information {
            assert_eq!([sealed.llc, &added, sealed.information].concat(), llc);
        } else {
            assert_eq!(sealed.llc, llc);
            assert!(sealed.information.is_empty() && behind.starts_with(&added));
        }
        assert!(sealed.extension.starts_with(&sealed.mark.to_be_bytes()));
        assert_eq!(sealed.saps, [llc[0], llc[1] & 0xfe]);
        assert_eq!(sealed.is_numbered, llc[2] & 3 != 3);
    }
    if let Some(checked) = checked(llc, behind) {
        let [first, second] = checked.pieces;
        let check = checked.check.to_be_bytes();
        if second.is_empty() {
            let parts = [checked.head, &check, first].concat();
            assert!(llc.starts_with(&parts) && (parts.len() == llc.len() || first.len() == 10 + covered(&first[10..])));
        } else {
            assert_eq!([checked.head, first].concat(), llc);
            assert!(behind.starts_with(&[&check, second].concat()));
        }
    }
}
