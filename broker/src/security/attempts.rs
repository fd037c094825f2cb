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
    /// Whether a login from this address may be tried.
    pub fn may_try(&self, address: IpAddr, now: Duration) -> bool {
        let by_address = self.by_address.lock();
        let forgotten = by_address.get(&network(address)).copied().unwrap_or(now);
        forgotten.max(now) + ONE_MORE <= now + ONE_MORE * AT_ONCE
    }

    /// A login from this address has failed.
    pub fn failed(&self, address: IpAddr, now: Duration) {
        let mut by_address = self.by_address.lock();
        if by_address.len() >= KEPT {
            by_address.retain(|_, forgotten| *forgotten > now);
        }
        if by_address.len() >= KEPT {
            // So many addresses fail that to count them is no limit any more.
            by_address.clear();
        }
        let forgotten = by_address.entry(network(address)).or_insert(now);
        // However many were under way: nobody is refused for longer than the time of these.
        let most = now + ONE_MORE * AT_ONCE;
        *forgotten = ((*forgotten).max(now) + ONE_MORE).min(most);
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
        let fails = |address, now| {
            let may = attempts.may_try(address, now);
            attempts.failed(address, now);
            may
        };
        let tried = |address, now| (0..100).filter(|_| fails(address, now)).count();
        assert_eq!(tried(here, now), 20);
        assert_eq!(tried(here, now + Duration::from_secs(3)), 3);
        assert_eq!(tried(there, now), 20);
        let tunnel = |last| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        assert_eq!(tried(tunnel(1), now) + tried(tunnel(2), now), 20, "one network");
    }

    #[test]
    fn logins_under_way_do_not_count_before_they_have_failed() {
        let attempts = Attempts::default();
        let (here, now) = (IpAddr::from([10, 0, 0, 1]), Duration::from_secs(100));
        assert!((0..1000).all(|_| attempts.may_try(here, now)));
        (0..1000).for_each(|_| attempts.failed(here, now));
        assert!(!attempts.may_try(here, now));
        assert!(attempts.may_try(here, now + ONE_MORE), "they are not refused for longer");
    }

    #[test]
    fn however_many_addresses_fail_only_some_are_kept() {
        let attempts = Attempts::default();
        for address in 0..200_000_u32 {
            attempts.failed(IpAddr::from(address.to_be_bytes()), Duration::ZERO);
        }
        assert!(attempts.by_address.lock().len() <= KEPT);
    }
}
