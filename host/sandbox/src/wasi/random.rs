//! Randomness that is a function of the request.

use wasmtime::StoreContextMut;
use wasmtime::component::LinkerInstance;

use super::Denied;
use crate::call::CallState;

/// Bytes that are handed out at once: they are made in the host's memory first.
const BYTES_MAX: u64 = 64 << 10;

/// SplitMix64 (Steele, Lea, Flood 2014). Not for secrets, and none are needed: `generate-secret` draws those.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, Denied> {
        let bounded = usize::try_from(length.min(BYTES_MAX)).unwrap_or(0);
        if length > BYTES_MAX {
            return Err(Denied::Random(length));
        }
        let mut bytes = Vec::with_capacity(bounded + 8);
        while bytes.len() < bounded {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(bounded);
        Ok(bytes)
    }
}

type Store<'a> = StoreContextMut<'a, CallState>;

fn random<'a>(store: &'a mut Store<'_>) -> &'a mut Random {
    &mut store.data_mut().wasi.random
}

pub(super) fn define(
    at: &mut LinkerInstance<'_, CallState>,
    interface: &str,
    name: &str,
) -> wasmtime::Result<bool> {
    match (interface, name) {
        ("random/random", "get-random-bytes") | ("random/insecure", "get-insecure-random-bytes") => {
            at.func_wrap(name, |mut store, (length,): (u64,)| Ok((random(&mut store).bytes(length)?,)))?;
        }
        ("random/random", "get-random-u64") | ("random/insecure", "get-insecure-random-u64") => {
            at.func_wrap(name, |mut store, ()| Ok((random(&mut store).next(),)))?;
        }
        ("random/insecure-seed", "insecure-seed") => at.func_wrap(name, |mut store, ()| {
            let random = random(&mut store);
            Ok(((random.next(), random.next()),))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // First outputs of the reference implementation for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let outputs: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            outputs,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn lengths_are_exact_and_bounded() {
        let mut random = Random::new(0);
        for length in [0, 1, 8, 9, BYTES_MAX] {
            assert_eq!(random.bytes(length).unwrap().len() as u64, length);
        }
        assert_eq!(random.bytes(BYTES_MAX + 1), Err(Denied::Random(BYTES_MAX + 1)));
        assert!(random.bytes(u64::MAX).is_err());
    }
}
