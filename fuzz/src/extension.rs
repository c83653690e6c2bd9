// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The extension of PDUs, in unauthenticated frames.

use barewire_llc::extension::{checked, covered, sealed};

/// The parts of any sealed or checked frame make up the frame: nothing twice, nothing left out except padding.
pub fn extension(data: &[u8]) {
    let Some((&cut, frame)) = data.split_first() else { return };
    let (llc, trailer) = frame.split_at(frame.len().min(cut.into()));
    if let Some(sealed) = sealed(llc, trailer) {
        let seal = [&sealed.counter.to_be_bytes()[..], &sealed.tag].concat();
        let extension_bytes = [&seal, sealed.extension].concat();
        if sealed.has_information {
            assert_eq!([sealed.llc, &extension_bytes, sealed.information].concat(), llc);
        } else {
            assert_eq!(sealed.llc, llc);
            assert!(sealed.information.is_empty() && trailer.starts_with(&extension_bytes));
        }
        assert!(sealed.extension.starts_with(&sealed.mark.to_be_bytes()));
        assert_eq!(sealed.saps, [llc[0], llc[1] & 0xfe]);
        assert_eq!(sealed.is_numbered, llc[2] & 3 != 3);
    }
    if let Some(checked) = checked(llc, trailer) {
        let [first, second] = checked.pieces;
        let check = checked.check.to_be_bytes();
        if second.is_empty() {
            let parts = [checked.head, &check, first].concat();
            assert!(llc.starts_with(&parts) && (parts.len() == llc.len() || first.len() == 10 + covered(&first[10..])));
        } else {
            assert_eq!([checked.head, first].concat(), llc);
            assert!(trailer.starts_with(&[&check, second].concat()));
        }
    }
}
