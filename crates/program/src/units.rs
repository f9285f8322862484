//! Sizes and times as people write and read them.

use std::time::Duration;

const KIB: f64 = 1024.0;

/// Reads a size: a number of bytes, or one with K, M, G or T (powers of 1024).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is no size: write a whole number and K, M, G or T, as in 64M or 4G");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("\"{text}\" is more memory than any machine has"))
}

/// Reads a count: a whole number, one with K, M, G or T (powers of 1000), or one as in 1e6.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "\"{text}\" is no whole number up to {}: write it as in 10000000, 10M or 1e7 (K, M, G and T are thousands, millions and so on)",
            u64::MAX
        )
    };
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let zeros = match unit.to_ascii_lowercase().as_str() {
        "" => Some(0),
        "k" => Some(3),
        "m" => Some(6),
        "g" => Some(9),
        "t" => Some(12),
        unit => unit
            .strip_prefix('e')
            .filter(|digits| !digits.starts_with('+'))
            .and_then(|digits| digits.parse().ok()),
    };
    let number: Option<u64> = number.parse().ok();
    let times = zeros.and_then(|zeros| 10u64.checked_pow(zeros));
    number.zip(times).and_then(|(number, times)| number.checked_mul(times)).ok_or_else(wrong)
}

/// Reads a count of at least one.
pub fn parse_some(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("0 is none: write a number from 1 on".into()),
        count => Ok(count),
    }
}

/// Reads numbers of a range.
pub fn within<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("\"{text}\" is no whole number from {least} to {most}"))
    }
}

/// Reads a version.
pub fn parse_version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!("\"{text}\" is no version: give the number that put prints, and get --json as \"version\"")
    })
}

/// Reads an address without a port.
pub fn parse_address(text: &str) -> Result<std::net::IpAddr, String> {
    text.parse().map_err(|_| format!("\"{text}\" is no address: write it as in 192.0.2.7 or 2001:db8::7"))
}

/// Writes a size with the unit that suits it.
pub fn show_size(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut units = ["bytes", "KiB", "MiB", "GiB"].into_iter();
    for unit in units.by_ref() {
        if size < KIB {
            let whole = size.fract() == 0.0;
            return if whole { format!("{size:.0} {unit}") } else { format!("{size:.1} {unit}") };
        }
        size /= KIB;
    }
    format!("{size:.1} TiB")
}

/// A size in MiB, with one digit after the point.
pub fn show_mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / KIB / KIB)
}

/// The longest time that can be told; whoever wants more wants no end.
const DAYS_MAX: u64 = 36_500;

/// For how long an item stays.
pub fn parse_expiry(text: &str) -> Result<Duration, String> {
    parse_time(text, "the item would end at once; delete it instead", "without --expires an item stays")
}

/// Reads 32 bits: a whole number, or one in hexadecimal with 0x before it.
pub fn parse_flags(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let number = digits.map_or_else(|| text.parse(), |digits| u32::from_str_radix(digits, 16));
    number.map_err(|_| {
        format!("\"{text}\" are no flags of 32 bits: write a number up to {}, or 0x1f", u32::MAX)
    })
}

/// How often something is done.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    parse_time(
        text,
        "there would be no time between one load and the next; 1s is often",
        "without --every it is loaded once",
    )
}

/// How often a snapshot is taken.
pub fn parse_snapshot_interval(text: &str) -> Result<Duration, String> {
    parse_time(
        text,
        "there would be no time between one snapshot and the next; 10m is often",
        "without --snapshot-every one is taken when the server ends",
    )
}

/// For how long something is kept that is not used.
pub fn parse_lease(text: &str) -> Result<Duration, String> {
    parse_time(
        text,
        "a view would end before it could be used",
        "and what no view uses takes memory for as long",
    )
}

/// For how long something is tried again.
pub fn parse_patience(text: &str) -> Result<Duration, String> {
    parse_time(
        text,
        "nothing would be tried again; leave --retry out instead",
        "and nobody waits for so long",
    )
}

/// For how long nothing may come.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_time(text, "no answer could be in time", "and nobody waits for so long")
}

/// How old what is read may be.
pub fn parse_lag(text: &str) -> Result<Duration, String> {
    parse_time(text, "nothing is so new; read with --strict instead", "and nobody waits for so long")
}

/// Reads a time: a whole number and ms, s, m, h or d. What no time at all would mean, and what is to be said
/// of one that is too long, is the caller's.
fn parse_time(text: &str, none: &str, too_long: &str) -> Result<Duration, String> {
    let wrong =
        || format!("\"{text}\" is no time: write a whole number and ms, s, m, h or d, as in 30s or 2h");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(unit_ms) {
        Some(0) => Err(format!("\"{text}\": {none}")),
        Some(ms) if ms <= DAYS_MAX * 86_400_000 => Ok(Duration::from_millis(ms)),
        _ => Err(format!("\"{text}\" is more than {DAYS_MAX} days; {too_long}")),
    }
}

/// Writes how long something lasts, in two units at most.
pub fn show_time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("4GiB"), Ok(4 << 30));
        assert_eq!(parse_size("1t"), Ok(1 << 40));
        assert_eq!(parse_size("512"), Ok(512));
        for wrong in ["", "G", "4X", "-1G", "1.5G", "4 G", "99999999999T", "4GG", "4i"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(show_size(4 << 30), "4 GiB");
        assert_eq!(show_size(1536), "1.5 KiB");
        assert_eq!(show_size(3 << 40), "3.0 TiB");
        assert_eq!(show_mib(3 << 19), "1.5");
    }

    #[test]
    fn counts() {
        for (text, count) in [
            ("0", 0),
            ("10M", 10_000_000),
            ("1e6", 1_000_000),
            ("12k", 12_000),
            ("3G", 3_000_000_000),
            ("2E0", 2),
        ] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for wrong in [
            "",
            "M",
            "1e",
            "e6",
            "1e20",
            "-1",
            "+1",
            "1.5M",
            "10 M",
            "1MM",
            "1e+6",
            "99999999999999999999",
            "x",
        ] {
            assert!(
                parse_count(wrong).is_err_and(|why| why.contains("10M") && why.contains("1e7")),
                "{wrong}"
            );
        }
        assert_eq!((parse_some("1"), parse_some("0").is_err()), (Ok(1), true));
        assert_eq!(within::<u8>(1, 64)("64"), Ok(64));
        for wrong in ["0", "65", "x", "", "-1", "300"] {
            assert!(within::<u8>(1, 64)(wrong).is_err_and(|why| why.contains("1 to 64")), "{wrong}");
        }
    }

    #[test]
    fn times() {
        let kinds = [parse_expiry, parse_interval, parse_snapshot_interval, parse_lease, parse_patience];
        for parse in kinds {
            assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
            assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
            assert_eq!(parse("2h"), Ok(Duration::from_secs(7200)));
            for wrong in ["", "5", "m", "0s", "1.5h", "-1s", "40000d", "99999999999999999999s"] {
                assert!(parse(wrong).is_err(), "{wrong}");
            }
        }
        // Each says what is true of it.
        let words = [
            ["item", "--expires"],
            ["load", "--every"],
            ["snapshot", "ends"],
            ["view", "memory"],
            ["--retry", "nobody"],
        ];
        for (parse, [none, long]) in kinds.into_iter().zip(words) {
            assert!(parse("0s").unwrap_err().contains(none), "{none}");
            assert!(parse("40000d").unwrap_err().contains(long), "{long}");
        }
        assert_eq!(show_time(Duration::from_secs(61)), "1 min 1 s");
        assert_eq!(show_time(Duration::from_secs(90_000)), "1 d 1 h");
    }
}
