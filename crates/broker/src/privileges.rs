// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drops all privileges except CAP_NET_RAW, before reading any input.

use std::io;

use nix::unistd::{Gid, User, setgid, setgroups, setuid};

use crate::BrokerError;

const CAP_NET_RAW: u32 = 13;
/// Linux has 41 capabilities today; larger numbers are refused harmlessly.
const CAPABILITIES_MAX: libc::c_ulong = 64;
/// `_LINUX_CAPABILITY_VERSION_3`: two words of 32 capabilities each.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Switches to `user` if given, and irrevocably drops all capabilities except CAP_NET_RAW.
///
/// # Errors
/// `WrongUse` if there is no such user; `MachineCannot` without CAP_NET_RAW.
pub fn keep_net_raw_only(user: Option<&str>) -> Result<(), BrokerError> {
    // Fails without CAP_SETPCAP, as under systemd, which has already dropped them.
    for capability in 0..CAPABILITIES_MAX {
        let _ = process_control(libc::PR_CAPBSET_DROP, capability);
    }
    if let Some(name) = user {
        let found = User::from_name(name).ok().flatten();
        let user = found.ok_or_else(|| BrokerError::WrongUse(format!("--user: there is no user '{name}'")))?;
        let failed = |error| BrokerError::MachineCannot(format!("becoming user '{name}' needs root: {error}"));
        process_control(libc::PR_SET_KEEPCAPS, 1).map_err(|error| BrokerError::system("PR_SET_KEEPCAPS", &error))?;
        setgroups(&[] as &[Gid]).and_then(|()| setgid(user.gid)).and_then(|()| setuid(user.uid)).map_err(failed)?;
    }
    // Kernels before 4.3 have no ambient set to clear.
    let _ = process_control(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong);
    let header = Header { version: CAPABILITY_VERSION, pid: 0 };
    let net_raw = Capabilities { effective: 1 << CAP_NET_RAW, permitted: 1 << CAP_NET_RAW, inheritable: 0 };
    let sets = [net_raw, Capabilities::default()];
    // SAFETY: the kernel reads the header and the two sets of this version, which outlive the call.
    if unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) } != 0 {
        return Err(BrokerError::MachineCannot(
            "the broker needs CAP_NET_RAW: start it as root, or by its systemd unit".to_owned(),
        ));
    }
    process_control(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(|error| BrokerError::system("PR_SET_NO_NEW_PRIVS", &error))
}

fn process_control(operation: libc::c_int, argument: libc::c_ulong) -> io::Result<()> {
    const NONE: libc::c_ulong = 0;
    // SAFETY: the operations used here take no pointers.
    match unsafe { libc::prctl(operation, argument, NONE, NONE, NONE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
