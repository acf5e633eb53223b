//! Which processes are sampled, and whose they are: chosen processes and their descendants, cgroups, containers. All
//! are followed while they come and go.

pub(crate) mod containers;
pub(crate) mod groups;
pub(crate) mod processes;
mod walk_scope;

pub(crate) use walk_scope::WalkScope;
