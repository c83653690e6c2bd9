// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Explains why a peer may not answer, by the causes that a user can check.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};

use barewire_endpoint::{Address, Ending};
use barewire_link::Locator;

/// Describes the loss of a peer that has never answered, or no longer answers, the endpoint with the address `own`.
pub(crate) fn silence_of(peer: Address, own: Address, ending: Ending) -> String {
    if let Some(ip) = own.locator.ips().next().filter(is_gone) {
        return format!(
            "{ip} is no longer an address of this host, so datagrams from {peer} do not arrive: connections by UDP end when \
             an address changes, those by Ethernet frames go on"
        );
    }
    let Locator { has_frames, port, .. } = peer.locator;
    let by_udp = peer.locator.ips().next().filter(|_| port != 0).map(|ip| format!("UDP to port {port} of {ip}"));
    let asked = [has_frames.then(|| "Ethernet frames".to_owned()), by_udp];
    let by = asked.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    let by = if by.is_empty() { by } else { format!(" ({by})") };
    if ending == Ending::NoAnswer {
        return format!("{peer} no longer answers{by}: its process, host, link or IP address is gone");
    }
    format!(
        "{peer} does not answer{by}: its process or host is gone, or a firewall, a switch or address translation \
         between the hosts blocks messages"
    )
}

/// Whether this host no longer has an address that it had.
fn is_gone(ip: &IpAddr) -> bool {
    UdpSocket::bind((*ip, 0)).is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_named_with_what_it_was_asked_by_and_the_most_likely_cause() {
        let at =
            |locator| Address { locator, ..Address::new([2, 0, 0, 0, 0, 7], barewire_llc::Lsap::new(0x24).unwrap()) };
        let udp = |ip: &str| Locator::of_port(9, [ip.parse().unwrap()]);
        let (here, gone, peer) = (udp("127.0.0.1"), udp("192.0.2.1"), udp("192.0.2.2"));
        let mut both = peer;
        both.has_frames = true;
        let cases = [
            (
                both,
                here,
                Ending::NeverAnswered,
                "02:00:00:00:00:07/0x24 does not answer (Ethernet frames and UDP to port 9 of",
            ),
            (
                Locator::FRAMES,
                Locator::FRAMES,
                Ending::NeverAnswered,
                "does not answer (Ethernet frames): its process or host",
            ),
            (
                peer,
                here,
                Ending::NoAnswer,
                "no longer answers (UDP to port 9 of 192.0.2.2): its process, host, link or IP",
            ),
            (Locator::UNKNOWN, here, Ending::NoAnswer, "02:00:00:00:00:07/0x24 no longer answers: its process"),
            (peer, gone, Ending::NoAnswer, "192.0.2.1 is no longer an address of this host, so datagrams from 02:"),
        ];
        for (peer, own, ending, said) in cases {
            let silence = silence_of(at(peer), at(own), ending);
            assert!(silence.contains(said), "{silence}");
        }
    }
}
