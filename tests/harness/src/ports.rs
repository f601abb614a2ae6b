//! Free loopback ports.

use std::{
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
};

use anyhow::{Result, bail};

/// Below the range from which Linux takes ports for outgoing connections (32768 and up) and below Kubernetes'
/// node ports (30000 and up): a server that is stopped for a while finds its port still free.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;
const ATTEMPTS: u64 = 100;

/// A port that nothing listens on now. Another process may take it before it is used: callers try again then.
pub(crate) fn free_port() -> Result<u16> {
    let random = RandomState::new(); // seeded by the system, so that several processes do not walk in step
    for attempt in 0..ATTEMPTS {
        let offset = random.hash_one(attempt) % u64::from(COUNT);
        let port = FIRST + u16::try_from(offset)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {FIRST} and {} after {ATTEMPTS} attempts", FIRST + COUNT)
}
