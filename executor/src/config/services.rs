//! The services of all profiles together: what the server half has to reach and to hold.

use super::Config;
use std::collections::BTreeSet;

impl Config {
    /// Ports of all profiles' services, each once.
    pub fn service_ports(&self) -> BTreeSet<u16> {
        self.profiles.values().flat_map(|profile| &profile.services).copied().collect()
    }

    /// How many services a profile has at most.
    pub fn services_most(&self) -> usize {
        self.profiles.values().map(|profile| profile.services.len()).max().unwrap_or(0)
    }
}
