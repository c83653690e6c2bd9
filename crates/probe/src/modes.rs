// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which ways of AF_XDP an interface has: each is tried, with a program that takes no frame.

use std::collections::BTreeMap;

use barewire_link::{Filter, LinkError, XdpConfig, XdpLink, XdpMode};
use clap::Args;

use barewire_recorder::LaunchError;

#[derive(Args)]
pub struct ModesCommand {
    /// The interface; attaching the program resets some drivers' links for a moment
    #[arg(long)]
    interface: String,
    /// Its receive queue
    #[arg(long, default_value_t = 0)]
    queue: u16,
}

/// Prints one JSON object: for each mode an empty text, or why it does not work.
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
        let complaint = match XdpLink::open(&config) {
            Ok(_) => String::new(),
            Err(LinkError::XdpMode { source, .. }) => source.to_string(),
            // Whatever else it is, it is the same for all modes.
            Err(error) => return Err(error.into()),
        };
        modes.insert(mode.to_string(), complaint);
    }
    println!("{}", serde_json::json!({"record": "xdp", "interface": command.interface, "modes": modes}));
    Ok(())
}
