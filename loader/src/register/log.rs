// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Messages about what happens inside of libbpf's calls, where no error of ours can be returned: libbpf gives its
//! caller a number. Everything else in this library returns its errors and prints nothing.
//!
//! One function for the process takes them ([`set_log`]). Until one is set, warnings go to stderr, as libbpf's do.

use crate::forked::ForkLock;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LogLevel {
    /// Something failed, or is not as it should be.
    Warn,
    /// What was done.
    Info,
    /// How it was decided.
    Debug,
}

type Sink = dyn Fn(LogLevel, &str) + Send + Sync;

enum To {
    Stderr,
    Nowhere,
    Sink(Arc<Sink>),
}

static TO: ForkLock<To> = ForkLock::new(|| To::Stderr);

/// Sets what receives messages, of one or more lines, without a line break at the end; `None` drops them. It is called
/// from any thread, by several at once.
#[expect(clippy::type_complexity, reason = "it is written once, and a name for it would be one more in the interface")]
pub fn set_log(sink: Option<Arc<dyn Fn(LogLevel, &str) + Send + Sync>>) {
    *TO.lock() = sink.map_or(To::Nowhere, To::Sink);
}

pub(crate) fn say(level: LogLevel, message: fmt::Arguments<'_>) {
    let sink = match &*TO.lock() {
        To::Stderr if level == LogLevel::Warn => None,
        To::Stderr | To::Nowhere => return,
        To::Sink(sink) => Some(Arc::clone(sink)),
    };
    // Not under the lock: the sink may set another.
    match sink {
        // Where nobody can be told, the application goes on: `eprintln` would panic.
        None => drop(writeln!(io::stderr(), "siteseer: {message}")),
        Some(sink) => sink(level, message.to_string().trim_end()),
    }
}

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What went wrong last in this thread inside of a call of libbpf's.
pub fn last_error() -> Option<String> {
    LAST.with_borrow(Clone::clone)
}

/// Keeps what went wrong for [`last_error`].
pub fn set_last_error(message: impl Into<String>) {
    LAST.set(Some(message.into()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn messages_go_where_they_are_wanted() {
        let seen: Arc<Mutex<Vec<(LogLevel, String)>>> = Arc::default();
        let sink = Arc::clone(&seen);
        set_log(Some(Arc::new(move |level, message: &str| sink.lock().unwrap().push((level, message.to_owned())))));
        say(LogLevel::Info, format_args!("two\nlines\n"));
        set_log(None);
        say(LogLevel::Warn, format_args!("nobody hears"));
        // Other tests may say something meanwhile.
        let seen = seen.lock().unwrap();
        assert!(seen.contains(&(LogLevel::Info, "two\nlines".to_owned())), "{seen:?}");
        assert!(!seen.iter().any(|(_, message)| message.contains("nobody")), "{seen:?}");
        *TO.lock() = To::Stderr;
    }

    #[test]
    fn the_last_error_is_the_threads_own() {
        set_last_error("one");
        set_last_error("two");
        assert_eq!(last_error().as_deref(), Some("two"));
        assert_eq!(std::thread::spawn(last_error).join().unwrap(), None);
    }
}
