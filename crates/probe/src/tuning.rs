// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells which values endpoints follow, so that whoever measures them need not repeat their defaults.

use barewire_endpoint::Tuning;
use serde_json::{Map, Value, json};

use crate::transport::links::wrong;
use barewire_recorder::LaunchError;

/// One JSON object: of each value, by its name in the tuning file, the default and what is in force here.
pub fn describe() -> Result<Value, LaunchError> {
    let (defaults, tuned) = (Tuning::default(), Tuning::load().map_err(wrong)?);
    let of = |name: &&str| (name.to_string(), json!({"default": defaults.get(name), "tuned": tuned.get(name)}));
    Ok(Value::Object(Tuning::NAMES.iter().map(of).collect::<Map<_, _>>()))
}
