// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints the endpoints' tunable values, so that measurement scripts need not repeat their defaults.

use barewire_endpoint::Tuning;
use serde_json::{Map, Value, json};

use crate::transport::links::usage_error;
use barewire_recorder::LaunchError;

/// One JSON object: for each value, by its name in the tuning file, the default and the value in force.
pub fn describe() -> Result<Value, LaunchError> {
    let (defaults, tuned) = (Tuning::default(), Tuning::load().map_err(usage_error)?);
    let entry = |name: &&str| (name.to_string(), json!({"default": defaults.get(name), "tuned": tuned.get(name)}));
    Ok(Value::Object(Tuning::NAMES.iter().map(entry).collect::<Map<_, _>>()))
}
