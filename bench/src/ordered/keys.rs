//! Sets of keys: numbers and strings, made by generators that are the same in every run, or read from a file.
//!
//! | set | keys |
//! |---|---|
//! | linear | 0, 16, 32 and so on |
//! | noised | each of those plus a number below 16 |
//! | clustered | cells of a Hilbert curve, of places around centres: see [`clustered`] |
//! | lognormal | 10^9 e^(2 z), z normal, as the papers on learned indexes have it |
//! | file | the numbers of a file |
//! | users | `user` and ten digits, of noised numbers |
//! | urls | sites by Zipf, below each two words and a number |
//! | paths | below a few folders by Zipf, of one to four levels |
//! | words | two to five syllables, as pronounceable as English |

use std::path::Path;

use crate::store::Numbers;

/// Numbers that cannot be had more of are asked for no more than so many times over.
const TRIES_MAX: usize = 64;

/// Numbers, sorted, each once.
pub(crate) fn numbers(name: &str, count: u64) -> Vec<u64> {
    match name {
        "linear" => (0..count).map(|index| index * 16).collect(),
        "noised" => {
            let mut numbers = Numbers(11);
            (0..count).map(|index| index * 16 + (numbers.next() & 15)).collect()
        }
        "clustered" => clustered(count),
        "lognormal" => {
            let mut numbers = Numbers(12);
            distinct(count, || (1e9 * (2.0 * normal(&mut numbers)).exp()) as u64)
        }
        _ => unreachable!("no set of numbers {name}"),
    }
}

/// The sets of numbers that are always measured.
pub(super) const NUMBERS: [&str; 4] = ["linear", "noised", "clustered", "lognormal"];

/// The sets of strings.
pub(super) const STRINGS: [&str; 4] = ["users", "urls", "paths", "words"];

/// Strings, sorted, each once.
pub(super) fn strings(name: &str, count: u64) -> Vec<Vec<u8>> {
    let mut numbers = Numbers(13);
    let made = match name {
        "users" => {
            let users = self::numbers("noised", count);
            return users.into_iter().map(|user| format!("user{user:010}").into_bytes()).collect();
        }
        "urls" => distinct(count, || url(&mut numbers, count)),
        "paths" => distinct(count, || path(&mut numbers)),
        "words" => distinct(count, || word(&mut numbers)),
        _ => unreachable!("no set of strings {name}"),
    };
    made.into_iter().map(String::into_bytes).collect()
}

/// Draws until there are so many different ones, and sorts them.
fn distinct<K: Ord>(count: u64, mut draw: impl FnMut() -> K) -> Vec<K> {
    let mut keys = Vec::new();
    for _ in 0..TRIES_MAX {
        let missing = (count as usize).saturating_sub(keys.len());
        keys.extend((0..missing).map(|_| draw()));
        keys.sort_unstable();
        keys.dedup();
        if keys.len() == count as usize {
            break;
        }
    }
    keys
}

/// A number of the normal distribution (Box and Muller).
fn normal(numbers: &mut Numbers) -> f64 {
    let (radius, angle) = (1.0 - numbers.share(), numbers.share());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Bits of a coordinate.
const COORDINATE_BITS: u32 = 30;
/// Places for one centre, on average.
const PLACES_A_CENTRE: u64 = 2000;

/// Places of a map as numbers of 60 bits, as the cell ids of OpenStreetMap's places are: the index along a
/// Hilbert curve over a square of 2^30 by 2^30 cells. There is a centre for every 2,000 places, anywhere in
/// the square. How many places it has and how wide it is both have heavy tails (Pareto, 1.2), as towns do;
/// places lie around it normally. One place of ten has no centre.
fn clustered(count: u64) -> Vec<u64> {
    let mut numbers = Numbers(14);
    let pareto = |numbers: &mut Numbers| (1.0 - numbers.share()).powf(-1.0 / 1.2);
    let side = f64::from(1u32 << COORDINATE_BITS);
    let mut sum = 0.0;
    let centres: Vec<(f64, f64, f64, f64)> = (0..(count / PLACES_A_CENTRE).max(8))
        .map(|_| {
            sum += pareto(&mut numbers);
            let width = side / 20_000.0 * pareto(&mut numbers);
            (sum, numbers.share() * side, numbers.share() * side, width)
        })
        .collect();
    distinct(count, || {
        let mut place = (numbers.share() * side, numbers.share() * side);
        if numbers.share() > 0.1 {
            let share = numbers.share() * sum;
            let centre = centres.partition_point(|centre| centre.0 < share).min(centres.len() - 1);
            let (_, x, y, width) = centres[centre];
            place = (x + width * normal(&mut numbers), y + width * normal(&mut numbers));
        }
        let cell = |at: f64| at.clamp(0.0, side - 1.0) as u64;
        hilbert(cell(place.0), cell(place.1))
    })
}

/// Where a cell is along the Hilbert curve.
fn hilbert(mut x: u64, mut y: u64) -> u64 {
    let mut index = 0;
    for bit in (0..COORDINATE_BITS).rev() {
        let side = 1 << bit;
        let (right, up) = (u64::from(x & side > 0), u64::from(y & side > 0));
        index += side * side * ((3 * right) ^ up);
        if up == 0 {
            if right == 1 {
                (x, y) = ((side - 1).wrapping_sub(x), (side - 1).wrapping_sub(y));
            }
            (x, y) = (y, x);
        }
        (x, y) = (x & (side - 1), y & (side - 1));
    }
    index
}

/// One of so many, the k-th about 1 / k as often as the first.
fn zipf(numbers: &mut Numbers, count: u64) -> u64 {
    ((count as f64).powf(numbers.share()) as u64).clamp(1, count) - 1
}

/// The word with this number, always the same.
fn word_of(number: u64) -> String {
    word(&mut Numbers(number.wrapping_mul(0x9e37_79b9) ^ 15))
}

fn word(numbers: &mut Numbers) -> String {
    const BEGINS: [&str; 24] = [
        "", "b", "br", "c", "ch", "d", "f", "g", "gr", "h", "l", "m", "n", "p", "pr", "r", "s", "sh", "st",
        "t", "th", "tr", "v", "w",
    ];
    const MIDDLES: [&str; 12] = ["e", "a", "i", "o", "u", "ea", "ou", "ee", "ai", "io", "oo", "y"];
    const ENDS: [&str; 16] =
        ["", "n", "r", "s", "t", "l", "ng", "d", "m", "st", "nt", "ck", "rd", "sh", "th", "ly"];
    let syllables = 2 + zipf(numbers, 4);
    let mut text = String::new();
    for _ in 0..syllables {
        text.push_str(BEGINS[zipf(numbers, BEGINS.len() as u64) as usize]);
        text.push_str(MIDDLES[zipf(numbers, MIDDLES.len() as u64) as usize]);
        text.push_str(ENDS[zipf(numbers, ENDS.len() as u64) as usize]);
    }
    text
}

fn url(numbers: &mut Numbers, count: u64) -> String {
    const DOMAINS: [&str; 6] = ["com", "org", "net", "de", "co.uk", "io"];
    let site = zipf(numbers, (count / 100).max(10));
    let (topic, page) = (word_of(zipf(numbers, 500)), word_of(1000 + zipf(numbers, 20_000)));
    let domain = DOMAINS[(site % DOMAINS.len() as u64) as usize];
    let scheme = if site % 5 == 0 { "http" } else { "https" };
    let article = zipf(numbers, 10_000_000);
    format!("{scheme}://www.{}{}.{domain}/{topic}/{page}-{article}.html", word_of(site), site / 7)
}

fn path(numbers: &mut Numbers) -> String {
    const FOLDERS: [&str; 8] = [
        "/usr/share/doc",
        "/usr/lib/x86_64-linux-gnu",
        "/home",
        "/var/lib",
        "/usr/include",
        "/usr/share/locale",
        "/opt",
        "/etc",
    ];
    const ENDS: [&str; 8] = [".so", ".h", ".txt", ".gz", ".py", ".html", ".mo", ""];
    let mut text = FOLDERS[zipf(numbers, FOLDERS.len() as u64) as usize].to_string();
    for _ in 0..1 + zipf(numbers, 4) {
        text.push('/');
        text.push_str(&word_of(2_000_000 + zipf(numbers, 5000)));
    }
    let end = ENDS[zipf(numbers, ENDS.len() as u64) as usize];
    format!("{text}/{}{}{end}", word(numbers), zipf(numbers, 100))
}

/// The numbers of a file: what stands in each line before the first comma, if it is a number, as in a list of
/// keys a line or of ranges of addresses.
pub(super) fn of_file(file: &Path) -> Result<Vec<u64>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let first = |line: &str| line.split(',').next()?.trim().trim_matches('"').parse().ok();
    let mut numbers: Vec<u64> = text.lines().filter_map(first).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.len() < 1000 {
        let (file, count) = (file.display(), numbers.len());
        return Err(format!("{file}: {count} different numbers; at least 1000 are needed, one a line"));
    }
    Ok(numbers)
}

/// Puts keys into an order that has nothing to do with theirs (Fisher and Yates).
pub(crate) fn shuffle<K>(keys: &mut [K], seed: u64) {
    let mut numbers = Numbers(seed);
    for end in (1..keys.len()).rev() {
        let other = ((u128::from(numbers.next()) * (end as u128 + 1)) >> 64) as usize;
        keys.swap(end, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_as_many_keys_as_were_wanted_in_order_and_each_once() {
        for name in NUMBERS {
            let numbers = numbers(name, 5000);
            assert_eq!(numbers.len(), 5000, "{name}");
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
        }
        for name in STRINGS {
            let strings = strings(name, 5000);
            assert_eq!(strings.len(), 5000, "{name}");
            assert!(strings.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
            assert!(strings.iter().all(|key| (2..200).contains(&key.len())), "{name}");
        }
    }

    #[test]
    fn the_curve_goes_from_each_cell_to_one_beside_it() {
        let mut cells: Vec<(u64, u64, u64)> =
            (0..64).flat_map(|x| (0..64).map(move |y| (hilbert(x, y), x, y))).collect();
        cells.sort_unstable();
        for (index, pair) in cells.windows(2).enumerate() {
            let ((at, x, y), (_, next_x, next_y)) = (pair[0], pair[1]);
            assert_eq!(at, index as u64);
            assert_eq!(x.abs_diff(next_x) + y.abs_diff(next_y), 1, "{at}");
        }
    }

    #[test]
    fn numbers_are_read_from_a_file_up_to_the_first_comma() {
        let file = std::env::temp_dir().join(format!("kelix-bench-keys-{}", std::process::id()));
        let ranges: String = (0..1000).map(|line| format!("{},{},DE\n", line * 10, line * 10 + 9)).collect();
        std::fs::write(&file, format!("# ranges\n{ranges}")).unwrap();
        assert_eq!(of_file(&file).unwrap()[..3], [0, 10, 20]);
        std::fs::write(&file, "1\n2\n").unwrap();
        assert!(of_file(&file).unwrap_err().contains("2 different numbers"));
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn shuffled_keys_are_the_same_keys() {
        let mut keys: Vec<u64> = (0..1000).collect();
        shuffle(&mut keys, 1);
        assert!(keys.windows(2).filter(|pair| pair[0] < pair[1]).count() < 600);
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..1000));
    }
}
