// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of `XdpLink` that need no privilege. Tests with two hosts are in `tests/test_xdp.py`.

use barewire_link::{Filter, Interface, LinkError, XdpConfig, XdpLink, XdpMode};

fn open(interface: &str) -> LinkError {
    let config = XdpConfig {
        interface: interface.to_owned(),
        filter: Filter::default(),
        queue: 0,
        mode: XdpMode::Auto,
        busy_poll: None,
    };
    XdpLink::open(&config).err().expect("this cannot be opened")
}

#[test]
fn missing_interface_is_named_in_the_error() {
    assert!(matches!(open("nosuch0"), LinkError::NoSuchInterface(name) if name == "nosuch0"));
}

#[test]
fn mtu_beyond_a_chunk_is_refused_with_the_largest_supported() {
    let lo = Interface::by_name("lo").unwrap();
    assert!(lo.mtu > 4096, "the loopback interface's MTU is {}", lo.mtu);
    let error = open("lo");
    assert!(matches!(&error, LinkError::MtuTooLarge { mtu, mtu_max: 3822, .. } if *mtu == lo.mtu), "{error}");
}
