// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The grammar of `--where`:
//!
//! ```text
//! expression = term { ("or" | "||") term }
//! term       = factor { ("and" | "&&") factor }
//! factor     = ("not" | "!") factor | "(" expression ")" | FIELD OPERATOR VALUE
//! OPERATOR   = "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"
//! ```
//!
//! A value is a word, or any text between quotation marks.

use super::{Comparison, Filter, Operator};
use siteseer::internals::pattern::Glob;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted(String),
    Operator(Operator),
    Open,
    Close,
    And,
    Or,
    Not,
}

/// How deep parentheses and `not` may be: nobody writes such an expression, and the parser calls itself.
const DEPTH: u32 = 64;
/// How many conditions there may be: what evaluates the expression calls itself for each `and` and `or`.
const CONDITIONS: usize = 1000;

/// Longer ones first, so that `<=` is not mistaken for `<`.
const SIGNS: [(&str, Token); 16] = [
    ("!=", Token::Operator(Operator::NotEqual)),
    ("!~", Token::Operator(Operator::NotLike)),
    ("<=", Token::Operator(Operator::AtMost)),
    (">=", Token::Operator(Operator::AtLeast)),
    ("==", Token::Operator(Operator::Equal)),
    ("=~", Token::Operator(Operator::Like)),
    ("&&", Token::And),
    ("||", Token::Or),
    ("=", Token::Operator(Operator::Equal)),
    ("<", Token::Operator(Operator::Less)),
    (">", Token::Operator(Operator::Greater)),
    ("~", Token::Operator(Operator::Like)),
    ("!", Token::Not),
    ("(", Token::Open),
    (")", Token::Close),
    (",", Token::And),
];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "_.-+/*?[]:@%$#^{}".contains(c)
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        // A word in brackets may have a sign in it: [!a-z].
        let word_end = || {
            let mut bracket = false;
            rest.char_indices().find(|&(at, c)| {
                bracket = (bracket || c == '[') && c != ']';
                // An arrow leads to a member, and is not a comparison.
                let arrow = c == '>' && rest[..at].ends_with('-');
                !(is_word(c) || bracket && c == '!' || arrow)
            })
        };
        let (token, len) = if first == '"' {
            let end = rest[1..].find('"').ok_or("a quotation mark is missing")?;
            (Token::Quoted(rest[1..=end].to_owned()), end + 2)
        } else if let Some((sign, token)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            (token.clone(), sign.len())
        } else {
            let len = word_end().map_or(rest.len(), |(at, _)| at);
            let token = match &rest[..len] {
                "" => {
                    return Err(format!(
                        "{first:?} cannot be in a condition; text that contains it needs quotation marks"
                    ));
                }
                "and" => Token::And,
                "or" => Token::Or,
                "not" => Token::Not,
                word => Token::Word(word.to_owned()),
            };
            (token, len)
        };
        tokens.push(token);
        rest = rest[len..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    depth: u32,
}

/// What the message says about something that is not a condition.
const EXPECTED: &str =
    "expected FIELD OP VALUE, with one of = != < <= > >= ~ !~ between; and, or, not and ( ) connect such conditions";

impl Parser {
    fn takes(&mut self, token: &Token) -> bool {
        self.tokens.next_if_eq(token).is_some()
    }

    fn expression(&mut self) -> Result<Filter, String> {
        let mut filter = self.term()?;
        while self.takes(&Token::Or) {
            filter = Filter::Or(filter.into(), self.term()?.into());
        }
        Ok(filter)
    }

    fn term(&mut self) -> Result<Filter, String> {
        let mut filter = self.factor()?;
        while self.takes(&Token::And) {
            filter = Filter::And(filter.into(), self.factor()?.into());
        }
        Ok(filter)
    }

    fn factor(&mut self) -> Result<Filter, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("parentheses and not are nested more than {DEPTH} deep"));
        }
        let filter = if self.takes(&Token::Not) {
            Filter::Not(self.factor()?.into())
        } else if self.takes(&Token::Open) {
            let inner = self.expression()?;
            if !self.takes(&Token::Close) {
                return Err("a ) is missing".to_owned());
            }
            inner
        } else {
            Filter::Compare(self.comparison()?)
        };
        self.depth -= 1;
        Ok(filter)
    }

    fn comparison(&mut self) -> Result<Comparison, String> {
        let (Some(Token::Word(field)), Some(Token::Operator(operator))) = (self.tokens.next(), self.tokens.next())
        else {
            return Err(EXPECTED.to_owned());
        };
        let (value, quoted) = match self.tokens.next() {
            Some(Token::Word(value)) => (value, false),
            Some(Token::Quoted(value)) => (value, true),
            _ => return Err(format!("{field} {} is not compared with anything: {EXPECTED}", operator.sign())),
        };
        let like = matches!(operator, Operator::Like | Operator::NotLike);
        let glob = like.then(|| Glob::new(&value)).transpose().map_err(|error| error.to_string())?;
        if !quoted && !like && value.starts_with(|c: char| c.is_ascii_digit()) && super::number(&value).is_none() {
            return Err(format!("{value} is not a number in C; text that begins with a digit needs quotation marks"));
        }
        Ok(Comparison { field, operator, value, glob })
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Filter, String> {
        let tokens = tokens(text)?;
        if tokens.iter().filter(|token| matches!(token, Token::Operator(_))).count() > CONDITIONS {
            return Err(format!("there are more than {CONDITIONS} conditions"));
        }
        let mut parser = Parser { tokens: tokens.into_iter().peekable(), depth: 0 };
        let filter = parser.expression()?;
        match parser.tokens.next() {
            None => Ok(filter),
            Some(Token::Close) => Err("a ( is missing".to_owned()),
            Some(_) => Err(format!("two conditions without and or or between: {EXPECTED}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense() {
        for (text, why) in [
            ("", "FIELD OP VALUE"),
            ("cap", "FIELD OP VALUE"),
            ("=21", "FIELD OP VALUE"),
            ("cap=", "cap = is not compared with anything"),
            ("cap = 21 comm = sh", "without and or or"),
            ("(cap = 21", "a ) is missing"),
            ("cap = 21)", "a ( is missing"),
            ("cap = 089", "not a number in C"),
            ("cap = 0x", "not a number in C"),
            ("path = \"a", "quotation mark"),
            ("path = a;b", "quotation marks"),
            ("path ~ [a", "[ without a ]"),
            ("cap = 99999999999999999999", "not a number"),
        ] {
            let error = text.parse::<Filter>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!("a=1,".repeat(30_000).parse::<Filter>().unwrap_err().contains("1000 conditions"));
        assert!("(".repeat(10_000).parse::<Filter>().unwrap_err().contains("deep"));
    }

    #[test]
    fn and_binds_closer_than_or() {
        let parse = |text: &str| text.parse::<Filter>().unwrap();
        assert_eq!(parse("a=1 or b=2 and c=3"), parse("a=1 || (b=2 && c=3)"));
        assert_eq!(parse("not a=1 and b=2"), parse("(not a=1) and b=2"));
        assert_ne!(parse("a=1 or b=2 and c=3"), parse("(a=1 or b=2) and c=3"));
        assert_eq!(parse("a~[!x]*"), parse("a =~ \"[!x]*\""));
        assert_eq!(parse("android=1"), parse("android == 1"));
        assert_eq!(parse("a->b.c[2]>-5"), parse("a->b.c[2] > -5"));
        assert_eq!(parse("a->b>=5 and c=1"), parse("(a->b >= 5) and c = 1"));
    }
}
