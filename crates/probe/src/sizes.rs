// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of message sizes on the command line.

/// Largest message, in bytes: each side holds a few of them at once.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// Parses `64,1400,4KiB` and `1..64KiB`, which doubles from the first to the last. With a `perturbation` p > 0, each
/// size n of a range adds n−p and n+p, as in NetPIPE. Returns the sizes in ascending order, without duplicates.
///
/// # Errors
/// A message with the wrong text and the right syntax.
pub fn parse(text: &str, perturbation: u32) -> Result<Vec<u32>, String> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => sizes.push(parse_one(part)?),
            Some((first, last)) => {
                let (first, last) = (parse_one(first)?, parse_one(last)?);
                if first > last {
                    return Err(format!("the range '{part}' ends before it starts"));
                }
                for size in doubling(first, last) {
                    sizes.extend([size.saturating_sub(perturbation), size, size.saturating_add(perturbation)]);
                }
            }
        }
    }
    sizes.retain(|size| (1..=MESSAGE_BYTES_MAX).contains(size));
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

/// `first`, 2 `first`, 4 `first` and so on below `last`, then `last`.
fn doubling(first: u32, last: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(first), move |size| size.checked_mul(2).filter(|next| *next < last))
        .chain((last > first).then_some(last))
}

fn parse_one(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "B" => 1,
        "k" | "kB" => 1_000,
        "M" | "MB" => 1_000_000,
        "K" | "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => 0,
    };
    digits
        .parse::<u32>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .filter(|size| (1..=MESSAGE_BYTES_MAX).contains(size))
        .ok_or_else(|| {
            format!(
                "'{text}' is not a message size; write 1 to 64MiB as 64, 4KiB (4096), 4kB (4000), or a range 1..64KiB"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_units_are_parsed() {
        assert_eq!(parse("64,1400,4KiB,4kB,1MiB", 0).unwrap(), [64, 1400, 4000, 4096, 1 << 20]);
    }

    #[test]
    fn a_range_doubles_and_includes_its_end() {
        assert_eq!(parse("1..8", 0).unwrap(), [1, 2, 4, 8]);
        assert_eq!(parse("64..1500", 0).unwrap(), [64, 128, 256, 512, 1024, 1500]);
        assert_eq!(parse("5..5", 0).unwrap(), [5]);
    }

    #[test]
    fn perturbation_adds_both_sizes_and_never_less_than_one_byte() {
        assert_eq!(parse("1..4", 3).unwrap(), [1, 2, 4, 5, 7]);
        assert_eq!(parse("64", 3).unwrap(), [64]);
        assert_eq!(parse("1..4", u32::MAX).unwrap(), [1, 2, 4]);
    }

    #[test]
    fn invalid_sizes_are_refused_and_quoted() {
        for (text, named) in [
            ("", "''"),
            ("0", "'0'"),
            ("x", "'x'"),
            ("-1", "'-1'"),
            ("1.5", "'1.5'"),
            ("64,", "''"),
            ("8..4", "'8..4'"),
            ("1..", "''"),
            ("65MiB", "'65MiB'"),
            ("9999999999", "'9999999999'"),
            ("4kb", "'4kb'"),
        ] {
            let error = parse(text, 0).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
