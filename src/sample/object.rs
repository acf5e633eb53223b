//! The object of an allocation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The Java object for which memory was allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedObject {
    /// The address of the object's class in the JVM.
    pub class: u64,
    /// The name of the class, once the JVM's memory gave it.
    pub class_name: Option<Arc<str>>,
}

impl AllocatedObject {
    /// An object of the class at this address; `None` if there is no address.
    #[must_use]
    pub fn of(class: u64) -> Option<AllocatedObject> {
        (class != 0).then_some(AllocatedObject { class, class_name: None })
    }
}
