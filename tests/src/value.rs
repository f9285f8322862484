//! Values that prove themselves: key and counter in front, and every other word follows from both, so that a
//! value put together from two others, or one of another key, shows.

/// Scrambles a number.
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Bytes before the filling.
pub const HEAD_BYTES: usize = 24;

fn word(seed: u64, index: usize) -> u64 {
    mix(seed.wrapping_add(index as u64))
}

/// Makes the value of `key` with this counter, `bytes` long (at least [`HEAD_BYTES`]).
pub fn make(key: u64, counter: u64, bytes: usize) -> Vec<u8> {
    let bytes = bytes.max(HEAD_BYTES);
    let seed = mix(key) ^ mix(!counter);
    let mut value = Vec::with_capacity(bytes + 8);
    for number in [key, counter, bytes as u64] {
        value.extend_from_slice(&number.to_le_bytes());
    }
    for index in 0..(bytes - HEAD_BYTES).div_ceil(8) {
        value.extend_from_slice(&word(seed, index).to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// The counter of a value of `key`, or what is wrong with it.
pub fn check(key: u64, value: &[u8]) -> Result<u64, String> {
    let number = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("8 bytes"));
    if value.len() < HEAD_BYTES {
        return Err(format!("a value of {} bytes under key {key}", value.len()));
    }
    if number(0) != key {
        return Err(format!("the value of key {} under key {key}", number(0)));
    }
    if number(16) != value.len() as u64 {
        return Err(format!("a value made {} bytes long came back with {}", number(16), value.len()));
    }
    let counter = number(8);
    let seed = mix(key) ^ mix(!counter);
    for (index, chunk) in value[HEAD_BYTES..].chunks(8).enumerate() {
        let expected = word(seed, index).to_le_bytes();
        if chunk != &expected[..chunk.len()] {
            return Err(format!("word {index} of the filling of key {key}, counter {counter}, is another's"));
        }
    }
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_anywhere_shows() {
        for bytes in [0, 24, 25, 40, 301] {
            let value = make(7, 9, bytes);
            assert_eq!(check(7, &value), Ok(9));
            assert!(check(8, &value).is_err());
            for at in 0..value.len() {
                let mut bad = value.clone();
                bad[at] ^= 1;
                // The counter of a value without filling is all that nothing else confirms.
                assert!(check(7, &bad).is_err() || (value.len() == 24 && (8..16).contains(&at)), "byte {at}");
            }
        }
    }
}
