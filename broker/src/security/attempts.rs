//! How many logins may fail from one address: some at once, and then one a second.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;

/// How many may fail at once.
const AT_ONCE: u32 = 20;
/// How long it takes until one more may.
const ONE_MORE: Duration = Duration::from_secs(1);
/// Addresses that are kept; above it those that have waited out their time go.
const KEPT: usize = 65_536;

/// The failed logins of every address.
#[derive(Debug, Default)]
pub struct Attempts {
    /// When everything that failed is forgotten.
    by_address: Mutex<HashMap<IpAddr, Duration>>,
}

impl Attempts {
    /// Counts a login from this address as one that fails, until [`Attempts::succeeded`]; whether
    /// it may be tried at all.
    pub fn begin(&self, address: IpAddr, now: Duration) -> bool {
        let mut by_address = self.by_address.lock();
        if by_address.len() >= KEPT {
            by_address.retain(|_, forgotten| *forgotten > now);
        }
        if by_address.len() >= KEPT {
            // So many addresses fail that to count them is no limit any more.
            by_address.clear();
        }
        let forgotten = by_address.entry(network(address)).or_insert(now);
        let after = (*forgotten).max(now) + ONE_MORE;
        if after > now + ONE_MORE * AT_ONCE {
            return false;
        }
        *forgotten = after;
        true
    }

    /// The login that was begun has not failed.
    pub fn succeeded(&self, address: IpAddr) {
        if let Some(forgotten) = self.by_address.lock().get_mut(&network(address)) {
            *forgotten = forgotten.saturating_sub(ONE_MORE);
        }
    }
}

/// Who has one address of IPv6 has all with its first half.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let first_half = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(first_half))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_logins_may_fail_at_once_then_one_a_second_and_others_are_not_held_up() {
        let attempts = Attempts::default();
        let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let now = Duration::from_secs(100);
        let tried = |address, now| (0..100).filter(|_| attempts.begin(address, now)).count();
        assert_eq!(tried(here, now), 20);
        assert_eq!(tried(here, now + Duration::from_secs(3)), 3);
        assert_eq!(tried(there, now), 20);
        let tunnel = |last| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        assert_eq!(tried(tunnel(1), now) + tried(tunnel(2), now), 20, "one network");
    }

    #[test]
    fn a_login_that_succeeds_does_not_count() {
        let attempts = Attempts::default();
        let (here, now) = (IpAddr::from([10, 0, 0, 1]), Duration::from_secs(100));
        for _ in 0..1000 {
            assert!(attempts.begin(here, now));
            attempts.succeeded(here);
        }
    }

    #[test]
    fn however_many_addresses_fail_only_some_are_kept() {
        let attempts = Attempts::default();
        for address in 0..200_000_u32 {
            assert!(attempts.begin(IpAddr::from(address.to_be_bytes()), Duration::ZERO));
        }
        assert!(attempts.by_address.lock().len() <= KEPT);
    }
}
