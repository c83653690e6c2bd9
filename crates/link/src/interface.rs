// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of network interfaces.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use nix::net::if_::InterfaceFlags;

use crate::{LinkError, MacAddress};

/// An Ethernet interface of this network namespace, as it was at look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: i32,
    /// Its MAC address.
    pub address: MacAddress,
    /// Its MTU in bytes.
    pub mtu: usize,
}

impl Interface {
    /// Looks up an interface by name. The loopback interface counts as Ethernet, for tests.
    ///
    /// # Errors
    /// [`LinkError::NoSuchInterface`], [`LinkError::NotEthernet`], or the system's error.
    pub fn by_name(name: &str) -> Result<Self, LinkError> {
        let socket = query_socket(name)?;
        let index = query(&socket, name, libc::SIOCGIFINDEX, "SIOCGIFINDEX")?;
        let hardware = query(&socket, name, libc::SIOCGIFHWADDR, "SIOCGIFHWADDR")?;
        let mtu = query(&socket, name, libc::SIOCGIFMTU, "SIOCGIFMTU")?;
        // SAFETY: each request filled the member of the union that is read here.
        let (index, hardware, mtu) =
            unsafe { (index.ifr_ifru.ifru_ifindex, hardware.ifr_ifru.ifru_hwaddr, mtu.ifr_ifru.ifru_mtu) };
        if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&hardware.sa_family) {
            return Err(LinkError::NotEthernet { interface: name.to_owned(), hardware_type: hardware.sa_family });
        }
        let mut address = [0; 6];
        for (byte, from) in address.iter_mut().zip(hardware.sa_data) {
            *byte = from as u8;
        }
        Ok(Self { name: name.to_owned(), index, address: MacAddress(address), mtu: usize::try_from(mtu).unwrap_or(0) })
    }
}

impl Interface {
    /// All Ethernet interfaces of this network namespace that are up, the loopback interface last.
    ///
    /// # Errors
    /// The system's error.
    pub fn all() -> Result<Vec<Self>, LinkError> {
        let mut found = Vec::new();
        for (is_loopback, name) in up()? {
            match Self::by_name(&name) {
                Ok(interface) => found.push((is_loopback, interface)),
                // A tunnel, or removed meanwhile.
                Err(LinkError::NotEthernet { .. } | LinkError::NoSuchInterface(_) | LinkError::InterfaceDown(_)) => {}
                Err(error) => return Err(error),
            }
        }
        found.sort_by_key(|(is_loopback, interface)| (*is_loopback, interface.index));
        Ok(found.into_iter().map(|(_, interface)| interface).collect())
    }

    /// The driver's name; empty if unknown.
    pub(crate) fn driver(&self) -> String {
        /// `struct ethtool_drvinfo`: command, name, and 160 bytes of other fields.
        #[repr(C)]
        struct DriverInfo {
            command: u32,
            driver: [u8; 32],
            _other: [u8; 160],
        }
        const ETHTOOL_GDRVINFO: u32 = 3;
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], _other: [0; 160] };
        // SAFETY: `info` is as long as the kernel's structure.
        if unsafe { ethtool(&self.name, &mut info) }.is_err() {
            return String::new();
        }
        let end = info.driver.iter().position(|byte| *byte == 0).unwrap_or(info.driver.len());
        String::from_utf8_lossy(&info.driver[..end]).into_owned()
    }
}

/// Sends a request to an interface's driver.
///
/// # Safety
/// `request` must be the kernel's structure for the command at its start.
unsafe fn ethtool<T>(name: &str, request: &mut T) -> Result<(), LinkError> {
    let socket = query_socket(name)?;
    let mut named = named_request(name)?;
    named.ifr_ifru.ifru_data = ptr::from_mut(request).cast();
    // SAFETY: the caller's; the structure outlives the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut named) } {
        0 => Ok(()),
        _ => Err(system("SIOCETHTOOL", name, io::Error::last_os_error())),
    }
}

/// A network interface of any kind with an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpInterface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its index in this network namespace.
    pub index: i32,
    /// Its MTU in bytes.
    pub mtu: usize,
    /// Its first IPv4 address or, if it has none, its first IPv6 address, preferably not a link-local one.
    pub ip: IpAddr,
}

impl IpInterface {
    /// Looks up an interface by name.
    ///
    /// # Errors
    /// [`LinkError::NoSuchInterface`], [`LinkError::NoIpAddress`], or the system's error.
    pub fn by_name(name: &str) -> Result<Self, LinkError> {
        let socket = query_socket(name)?;
        let index = query(&socket, name, libc::SIOCGIFINDEX, "SIOCGIFINDEX")?;
        let mtu = query(&socket, name, libc::SIOCGIFMTU, "SIOCGIFMTU")?;
        // SAFETY: each request filled the member of the union that is read here.
        let (index, mtu) = unsafe { (index.ifr_ifru.ifru_ifindex, mtu.ifr_ifru.ifru_mtu) };
        let addresses = nix::ifaddrs::getifaddrs().map_err(|error| system("getifaddrs", name, error.into()))?;
        let own = addresses.filter(|address| address.interface_name == name).filter_map(|own| ip_address(own.address?));
        let rank = |ip: &IpAddr| match ip {
            IpAddr::V4(_) => 0,
            IpAddr::V6(ip) => 1 + u8::from(ip.is_unicast_link_local()),
        };
        let ip = own.min_by_key(rank).ok_or_else(|| LinkError::NoIpAddress(name.to_owned()))?;
        Ok(Self { name: name.to_owned(), index, mtu: usize::try_from(mtu).unwrap_or(0), ip })
    }

    /// All interfaces of this network namespace that are up and have an IP address, the loopback interface last.
    ///
    /// # Errors
    /// The system's error.
    pub fn all() -> Result<Vec<Self>, LinkError> {
        let mut found = Vec::new();
        for (is_loopback, name) in up()? {
            match Self::by_name(&name) {
                Ok(interface) => found.push((is_loopback, interface)),
                // It may have been removed meanwhile.
                Err(LinkError::NoIpAddress(_) | LinkError::NoSuchInterface(_) | LinkError::InterfaceDown(_)) => {}
                Err(error) => return Err(error),
            }
        }
        found.sort_by_key(|(is_loopback, interface)| (*is_loopback, interface.index));
        Ok(found.into_iter().map(|(_, interface)| interface).collect())
    }

    /// Whether the kernel takes several packets for it in one piece (generic segmentation offload).
    pub(crate) fn segments(&self) -> bool {
        /// `struct ethtool_value`.
        #[repr(C)]
        struct Value {
            command: u32,
            data: u32,
        }
        const ETHTOOL_GGSO: u32 = 0x23;
        let mut value = Value { command: ETHTOOL_GGSO, data: 0 };
        // SAFETY: it is the kernel's structure.
        unsafe { ethtool(&self.name, &mut value) }.is_ok() && value.data != 0
    }
}

/// An interface's speed in Mbit/s; 0 if the system does not know it.
#[must_use]
pub fn interface_speed(name: &str) -> u32 {
    let speed = std::fs::read_to_string(std::path::Path::new("/sys/class/net").join(name).join("speed"));
    // Some drivers report −1.
    speed.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn ip_address(address: nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

/// The names of all interfaces that are up, each once, and whether each is a loopback interface.
fn up() -> Result<Vec<(bool, String)>, LinkError> {
    let addresses = nix::ifaddrs::getifaddrs().map_err(|error| system("getifaddrs", "", error.into()))?;
    let mut found: Vec<(bool, String)> = Vec::new();
    for address in addresses.filter(|address| address.flags.contains(InterfaceFlags::IFF_UP)) {
        if found.iter().all(|(_, name)| *name != address.interface_name) {
            found.push((address.flags.contains(InterfaceFlags::IFF_LOOPBACK), address.interface_name));
        }
    }
    Ok(found)
}

/// A socket for requests about interfaces.
fn query_socket(name: &str) -> Result<OwnedFd, LinkError> {
    // SAFETY: socket() takes no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    owned(descriptor).map_err(|source| system("socket", name, source))
}

/// An interface request with this name.
fn named_request(name: &str) -> Result<libc::ifreq, LinkError> {
    // SAFETY: an ifreq of zeros is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The name must be followed by a zero byte; longer names do not exist.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(LinkError::NoSuchInterface(name.to_owned()));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn query(
    socket: &OwnedFd,
    name: &str,
    request: libc::Ioctl,
    operation: &'static str,
) -> Result<libc::ifreq, LinkError> {
    let mut interface = named_request(name)?;
    // SAFETY: the three requests used here read the name from, and write the answer into, this ifreq.
    match unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut interface) } {
        0 => Ok(interface),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENODEV) => Err(LinkError::NoSuchInterface(name.to_owned())),
            error => Err(system(operation, name, error)),
        },
    }
}

/// Takes ownership of a descriptor returned by a system call.
pub(crate) fn owned(descriptor: i32) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor in this process; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

impl Interface {
    /// Turns `InterfaceDown` into `InterfaceGone` if the interface no longer exists.
    pub(crate) fn refine_down(&self, error: LinkError) -> LinkError {
        match error {
            LinkError::InterfaceDown(own) if !self.exists() => LinkError::InterfaceGone(own),
            error => error,
        }
    }

    fn exists(&self) -> bool {
        let mut name = [0; libc::IF_NAMESIZE];
        // SAFETY: `name` has room for any interface name.
        !unsafe { libc::if_indextoname(self.index.cast_unsigned(), name.as_mut_ptr()) }.is_null()
    }
}

/// The error of a failed system call.
pub(crate) fn system(operation: &'static str, interface: &str, source: io::Error) -> LinkError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => LinkError::NotPermitted,
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => LinkError::InterfaceDown(interface.to_owned()),
        _ => LinkError::System { operation, interface: interface.to_owned(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_interface_is_found() {
        let lo = Interface::by_name("lo").expect("every namespace has a loopback interface");
        assert!(lo.index > 0 && lo.mtu >= 1500, "{lo:?}");
    }

    #[test]
    fn missing_interface_is_named_in_the_error() {
        for name in ["", "nosuch0", "a-name-longer-than-any-interface"] {
            assert!(matches!(Interface::by_name(name), Err(LinkError::NoSuchInterface(n)) if n == name));
        }
    }
}
