// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Expressions of `siteseer trace --where`: parsed, checked, and asked about a call's values.
#![no_main]

// The command's own modules.
#[allow(dead_code, reason = "the command uses the rest")]
#[path = "../../src"]
mod command {
    pub(crate) mod filter;
}

use command::filter::{Fields, Filter, Type, Value};

fn value(name: &str) -> Option<Value> {
    Some(match name {
        "i" => Value::of(&Type::Number { bits: 32, signed: true }, 0x5555_ffff_fffe, vec!["-2".to_owned()]),
        "u" => Value::of(&Type::Number { bits: 64, signed: false }, u64::MAX, vec![u64::MAX.to_string()]),
        "p" => Value::of(&Type::Pointer { bits: 64 }, 0x7ffe, vec!["0x7ffe".to_owned(), "/etc/passwd".to_owned()]),
        "c" => Value::text("bash"),
        _ => return None,
    })
}

siteseer_fuzz::target!(|data| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(filter) = text.parse::<Filter>() else { return };
    let _ = filter.check(&Fields::default());
    let holds = filter.holds(&value);
    let negated = Filter::Not(Box::new(filter)).holds(&value);
    assert_eq!(negated, holds.map(|holds| !holds), "not");
});
