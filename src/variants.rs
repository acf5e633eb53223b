//! The variants of an enum, for unit tests of lists that are written by hand.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The names of all variants, in their order.
pub(crate) fn all<T: DeserializeOwned>() -> Vec<String> {
    // The error lists them.
    let error = serde_json::from_str::<T>("\"?\"").err().map(|error| error.to_string()).unwrap_or_default();
    error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

/// The name of the variant of this value.
pub(crate) fn of<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(serde_json::Value::Object(tagged)) => tagged.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    }
}
