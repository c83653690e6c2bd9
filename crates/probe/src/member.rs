// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A child process that measures one of several concurrent pairs. Its standard input is its control channel. It ends
//! with that channel, or with its parent.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Program, Stdio};

use nix::poll::PollTimeout;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::client::{self, Command, Event, ScheduleHandle};
use crate::control::{Address, Channel};
use crate::protocol::Session;
use crate::server::{self, Config};
use crate::transport::LocalConfig;
use barewire_recorder::LaunchError;

/// Task of a child process: its only argument, as JSON.
#[derive(Serialize, Deserialize)]
enum Role {
    /// Active side of a pair; the channel leads to the schedule.
    Active { peer: Address, session: Session, local: LocalConfig, cpu: Option<usize> },
    /// Passive side of a session; the channel leads to the active side.
    Passive { config: Config, is_tcp: bool },
}

/// Runs the given role.
pub fn run(role: &str) -> Result<(), LaunchError> {
    let failed = |error| LaunchError::system("member", error);
    set_pdeathsig(Signal::SIGKILL).map_err(|error| LaunchError::system("prctl", error))?;
    match serde_json::from_str(role) {
        Ok(Role::Active { peer, session, local, cpu }) => {
            let mut schedule = RemoteSchedule(Channel::inherited(false).map_err(failed)?);
            client::run_pair(&peer, &session, &local, cpu, &mut schedule);
        }
        Ok(Role::Passive { config, is_tcp }) => {
            server::serve_session(&config, Channel::inherited(is_tcp).map_err(failed)?);
        }
        Err(_) => {
            return Err(LaunchError::WrongUse(
                "`member` is for internal use: it is started by another probe".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Starts the active side of a pair, and returns the channel to it. The calling thread must outlive the process
/// (`PR_SET_PDEATHSIG`).
pub fn drive(
    peer: &Address,
    session: &Session,
    local: &LocalConfig,
    cpu: Option<usize>,
) -> Result<(Child, Channel), LaunchError> {
    let role = Role::Active { peer: peer.clone(), session: session.clone(), local: local.clone(), cpu };
    let (channel, other) = Channel::pair().map_err(|error| LaunchError::system("socketpair", error))?;
    Ok((start(&role, other)?, channel))
}

/// Starts the passive side of a session. The calling thread must outlive the process (`PR_SET_PDEATHSIG`).
pub fn serve(config: &Config, channel: Channel) -> Result<(), LaunchError> {
    let (descriptor, is_tcp) = channel.into_inner();
    let mut process = start(&Role::Passive { config: config.clone(), is_tcp }, descriptor)?;
    // Reap it. The child itself reports how its session ended.
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

/// The schedule in the parent process.
struct RemoteSchedule(Channel);

impl ScheduleHandle for RemoteSchedule {
    fn next(&mut self) -> Option<Command> {
        self.0.wait_readable(PollTimeout::NONE);
        self.0.receive().ok().flatten()
    }

    fn report(&mut self, event: Event) -> bool {
        self.0.send(&event).is_ok()
    }
}
