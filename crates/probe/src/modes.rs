// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which AF_XDP modes an interface supports: tries each, with a program that matches no frame.

use std::collections::BTreeMap;

use barewire_link::{Filter, LinkError, XdpConfig, XdpLink, XdpMode};
use clap::Args;

use barewire_recorder::LaunchError;

#[derive(Args)]
pub struct ModesCommand {
    /// Interface to try; attaching the program resets some drivers' links briefly
    #[arg(long)]
    interface: String,
    /// Receive queue of the interface
    #[arg(long, default_value_t = 0)]
    queue: u16,
}

/// Prints one JSON object: for each mode an empty string, or the error.
pub fn run(command: &ModesCommand) -> Result<(), LaunchError> {
    let mut modes = BTreeMap::new();
    for mode in [XdpMode::Generic, XdpMode::Native, XdpMode::ZeroCopy] {
        let config = XdpConfig {
            interface: command.interface.clone(),
            filter: Filter::default(),
            queue: command.queue,
            mode,
            busy_poll: None,
        };
        let error = match XdpLink::open(&config) {
            Ok(_) => String::new(),
            Err(LinkError::XdpMode { source, .. }) => source.to_string(),
            // Other errors do not depend on the mode.
            Err(error) => return Err(error.into()),
        };
        modes.insert(mode.to_string(), error);
    }
    println!("{}", serde_json::json!({"record": "xdp", "interface": command.interface, "modes": modes}));
    Ok(())
}
