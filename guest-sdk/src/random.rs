//! [`Random`]: choices by a pass's seed, which is the only randomness that a plugin has.

/// SplitMix64 (Steele, Lea and Flood, 2014). The same seed gives the same choices, so a recorded pass can be repeated.
/// Not for secrets: those are the host's to draw.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From [`Pass::seed`](crate::Pass::seed).
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// At most so many of these, each as likely as any other, in no order.
    pub fn choose<T>(&mut self, mut from: Vec<T>, count_max: usize) -> Vec<T> {
        let count = from.len().min(count_max);
        for at in 0..count {
            // What is left of the remainder's bias is less than one in 2^40 for lists that fit into memory.
            let other = self.number() % (from.len() - at) as u64;
            from.swap(at, at + usize::try_from(other).unwrap_or_default());
        }
        from.truncate(count);
        from
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_paper() {
        // The first outputs for seed 1234567, of the authors' C program.
        let mut random = Random::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| random.number()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn everybody_has_their_turn() {
        let mut seen = [0_u32; 5];
        for seed in 0..1000 {
            for chosen in Random::new(seed).choose((0..5).collect(), 2) {
                seen[chosen] += 1;
            }
        }
        assert!(seen.iter().all(|count| (320..=480).contains(count)), "{seen:?}");
    }

    proptest! {
        #[test]
        fn a_choice_is_of_the_list_and_nobody_twice(len in 0_usize..50, max in 0_usize..60, seed in any::<u64>()) {
            let chosen = Random::new(seed).choose((0..len).collect(), max);
            prop_assert_eq!(chosen.len(), len.min(max));
            prop_assert!(chosen.iter().all(|one| *one < len));
            prop_assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), chosen.len());
            prop_assert_eq!(Random::new(seed).choose((0..len).collect(), max), chosen);
        }
    }
}
