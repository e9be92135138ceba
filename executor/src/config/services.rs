//! The services of all profiles together: what the server half has to reach and to hold.

use crate::profile::Profile;
use std::collections::BTreeSet;

/// What the server half was locked down for, at the executor's start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relays {
    /// Ports of all profiles' services, each once.
    pub ports: BTreeSet<u16>,
    /// How many services a profile has at most.
    pub most: usize,
}

impl Relays {
    /// Those of these profiles.
    pub fn of<'a>(profiles: impl Iterator<Item = &'a Profile>) -> Self {
        let mut relays = Self::default();
        for profile in profiles {
            relays.ports.extend(&profile.services);
            relays.most = relays.most.max(profile.services.len());
        }
        relays
    }

    /// Whether whoever is locked down for these can serve those too.
    pub fn covers(&self, others: &Self) -> bool {
        self.ports.is_superset(&others.ports) && self.most >= others.most
    }
}
