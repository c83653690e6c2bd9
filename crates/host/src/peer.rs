// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other processes of this program, and the channels to them.

use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};

use clap::Args;

use barewire_recorder::{LaunchError, cpu};

/// A process of this program; killed on drop.
pub struct Peer(Child);

impl Peer {
    /// Starts this program with these arguments.
    pub fn start(arguments: &[&str], core: usize, input: Stdio, output: Stdio) -> Result<Self, LaunchError> {
        let program = std::env::current_exe().map_err(|error| LaunchError::system("finding this program", error))?;
        let mut command = Command::new(program);
        command.args(arguments).args(["--cpu", &core.to_string(), "--parent", &std::process::id().to_string()]);
        command.stdin(input).stdout(output);
        command.spawn().map(Self).map_err(|error| LaunchError::system("starting another process", error))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Fails if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Arguments of every such process.
#[derive(Args)]
pub struct Place {
    #[arg(long)]
    cpu: usize,
    /// The process that starts this one
    #[arg(long)]
    parent: u32,
}

impl Place {
    /// Prepares such a process: pins it to its core, and makes it end with its parent.
    pub fn settle(&self) -> Result<(), LaunchError> {
        cpu::pin(self.cpu)?;
        // SAFETY: no pointers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // There is no signal for a parent that had ended before.
        if std::os::unix::process::parent_id() == self.parent {
            Ok(())
        } else {
            Err(LaunchError::Failed(format!("process {}, which started this one, has ended", self.parent)))
        }
    }
}

/// Both ends of a TCP connection of this machine with itself, without Nagle's algorithm.
pub fn tcp_pair() -> Result<(TcpStream, TcpStream), LaunchError> {
    let made = || -> std::io::Result<_> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let own = TcpStream::connect(listener.local_addr()?)?;
        let theirs = loop {
            let (stream, from) = listener.accept()?;
            if from == own.local_addr()? {
                break stream;
            }
        };
        own.set_nodelay(true)?;
        theirs.set_nodelay(true)?;
        Ok((own, theirs))
    };
    made().map_err(|error| LaunchError::system("TCP on this machine", error))
}

/// Two UDP sockets of this machine, connected with each other.
pub fn udp_pair() -> Result<(UdpSocket, UdpSocket), LaunchError> {
    let made = || -> std::io::Result<_> {
        let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let theirs = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        own.connect(theirs.local_addr()?)?;
        theirs.connect(own.local_addr()?)?;
        Ok((own, theirs))
    };
    made().map_err(|error| LaunchError::system("UDP on this machine", error))
}
