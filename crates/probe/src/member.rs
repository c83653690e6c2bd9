// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One of several processes that measure at once, started by the probe that drives or serves: its standard input is
//! its control channel. It ends with that, or with whoever started it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Program, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::client::{self, Command, Event, Orders};
use crate::control::{Address, Channel};
use crate::protocol::Session;
use crate::server::{self, Config};
use crate::transport::Place;
use barewire_recorder::LaunchError;

/// What such a process is for: its only argument, as JSON.
#[derive(Serialize, Deserialize)]
enum Role {
    /// The active side of a pair; the channel leads to the schedule.
    Active { peer: Address, session: Session, place: Place, cpu: Option<usize> },
    /// The passive side of a session; the channel leads to the active side.
    Passive { config: Config, is_tcp: bool },
}

/// Does what the argument says.
pub fn run(role: &str) -> Result<(), LaunchError> {
    let failed = |error| LaunchError::system("member", error);
    set_pdeathsig(Signal::SIGKILL).map_err(|error| LaunchError::system("prctl", error))?;
    match serde_json::from_str(role) {
        Ok(Role::Active { peer, session, place, cpu }) => {
            let mut schedule = Remote(Channel::inherited(false).map_err(failed)?);
            client::run_pair(&peer, &session, &place, cpu, &mut schedule);
        }
        Ok(Role::Passive { config, is_tcp }) => {
            server::serve_session(&config, Channel::inherited(is_tcp).map_err(failed)?);
        }
        Err(_) => return Err(LaunchError::WrongUse("a member is started by a probe, not by a person".to_owned())),
    }
    Ok(())
}

/// Starts the active side of a pair; with the channel to it. The calling thread must live as long as that process.
pub fn drive(
    peer: &Address,
    session: &Session,
    place: &Place,
    cpu: Option<usize>,
) -> Result<(Child, Channel), LaunchError> {
    let role = Role::Active { peer: peer.clone(), session: session.clone(), place: place.clone(), cpu };
    let (channel, other) = Channel::pair().map_err(|error| LaunchError::system("socketpair", error))?;
    Ok((start(&role, other)?, channel))
}

/// Starts the passive side of a session. The calling thread must live as long as that process.
pub fn serve(config: &Config, channel: Channel) -> Result<(), LaunchError> {
    let (descriptor, is_tcp) = channel.into_inner();
    let mut process = start(&Role::Passive { config: config.clone(), is_tcp }, descriptor)?;
    // It says itself how its session ended; here it must only not stay in the process table.
    std::thread::spawn(move || process.wait());
    Ok(())
}

fn start(role: &Role, input: OwnedFd) -> Result<Child, LaunchError> {
    let failed = |error: io::Error| LaunchError::system("a process for a pair cannot be started", error);
    let role = serde_json::to_string(role).map_err(|error| failed(error.into()))?;
    let mut program = Program::new("/proc/self/exe");
    program.arg0("barewire-probe").arg("member").arg(role).stdin(Stdio::from(input)).stdout(Stdio::null());
    program.spawn().map_err(failed)
}

/// The schedule in another process.
struct Remote(Channel);

impl Orders for Remote {
    fn next(&mut self) -> Option<Command> {
        self.0.wait_for_news();
        self.0.receive().ok().flatten()
    }

    fn report(&mut self, event: Event) -> bool {
        self.0.send(&event).is_ok()
    }
}
