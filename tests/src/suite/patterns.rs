// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The patterns of a case's table: `*` is any characters, `?` is one.

/// Whether a name meets a pattern. Names are symbols, so that bytes are characters.
pub fn meets(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // Where to go on if what follows the last `*` does not fit: it takes one more character then.
    let (mut p, mut n, mut star) = (0, 0, None);
    while let Some(&byte) = name.get(n) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == byte => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((after, taken)) => {
                    p = after;
                    n = taken + 1;
                    star = Some((after, taken + 1));
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::meets;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name) in
            [("foo", "foo"), ("foo.*", "foo.isra.0"), ("*", ""), ("f*o*.?", "foobaro.part.1"), ("**a", "bba")]
        {
            assert!(meets(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("foo", "foo.cold"), ("foo.*", "foo"), ("?", ""), ("f*o", "fob"), ("", "a")] {
            assert!(!meets(pattern, name), "{pattern} {name}");
        }
    }
}
