// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The C interface's structures of options, as callers of other versions hand them over: the size is the first byte, at
//! most what there is, and the pointers are to strings and lists that the input has or to NULL.
#![no_main]
// The library's own modules. Some parts of them are not used here.
#![allow(dead_code)]

#[path = "../../src/argument.rs"]
mod argument;
#[path = "../../src/changes.rs"]
mod changes;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/layout.rs"]
mod layout;
#[path = "../../src/link.rs"]
mod link;
#[path = "../../src/options.rs"]
mod options;
#[path = "../../src/print.rs"]
mod print;
#[path = "../../src/register.rs"]
mod register;
#[path = "../../src/report.rs"]
mod report;
#[path = "../../src/target.rs"]
mod target;
#[path = "../../src/text.rs"]
mod text;

use options::{ATTACH_OPTS, AttachOpts, REGISTER_OPTS, RegisterOpts, SOURCE_OPTS, SourceOpts};
use std::ffi::c_char;
use std::ptr;

/// A caller's structure in memory that is as large as it says.
struct Caller {
    words: Vec<u64>,
    size: usize,
}

impl Caller {
    /// Of the input's bytes, with its size in front.
    fn new(size: u8, bytes: &[u8]) -> Caller {
        let size = usize::from(size);
        let mut words = vec![0u64; size.div_ceil(8).max(1)];
        words[0] = size as u64;
        for (word, bytes) in words[1..].iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        Caller { words, size }
    }

    /// Sets a member that is a word, if the structure has it.
    fn set(&mut self, layout: layout::Layout, member: &str, value: u64) {
        let (_, at) = layout.2.iter().find(|(name, _)| *name == member).expect("a member");
        if at + 8 <= self.words.len() * 8 {
            self.words[at / 8] = value;
        }
    }

    fn pointer<T>(&self) -> *const T {
        assert!(self.size <= self.words.len() * 8);
        self.words.as_ptr().cast()
    }
}

siteseer_fuzz::target!(|data| {
    let Some(([size, other, choice, count, split], rest)) = data.split_first_chunk() else { return };
    let (bytes, text) = rest.split_at(usize::from(*split).min(rest.len()));
    let mut strings: Vec<Vec<u8>> = text.split(|&byte| byte == 0).take(9).map(<[u8]>::to_vec).collect();
    strings.iter_mut().for_each(|string| string.push(0));
    let mut names: Vec<*const c_char> = strings.iter().map(|string| string.as_ptr().cast()).collect();
    if choice & 1 != 0 {
        names.push(ptr::null());
    }
    let file = if choice & 2 != 0 { names[0] as u64 } else { 0 };
    let mut source = Caller::new(*size, bytes);
    source.set(SOURCE_OPTS, "file", file);
    source.set(SOURCE_OPTS, "embedded", if choice & 4 != 0 { text.as_ptr() as u64 } else { 0 });
    source.set(SOURCE_OPTS, "embedded_sz", u64::from(*count).min(text.len() as u64));
    source.set(SOURCE_OPTS, "modules", if choice & 32 != 0 { names.as_ptr() as u64 } else { 0 });
    source.set(SOURCE_OPTS, "module_cnt", u64::from(*count).min(names.len() as u64));
    let mut register = Caller::new(*other, bytes);
    register.set(REGISTER_OPTS, "source", if choice & 8 != 0 { source.pointer::<u8>() as u64 } else { 0 });
    let mut attach = Caller::new(*other, bytes);
    let has_list = choice & 16 != 0;
    attach.set(ATTACH_OPTS, "functions", if has_list { names.as_ptr() as u64 } else { 0 });
    attach.set(ATTACH_OPTS, "function_cnt", u64::from(*count).min(names.len() as u64));
    attach.set(ATTACH_OPTS, "file", file);
    // SAFETY: the structures have as many bytes as they say, the lists as many members, and the strings end with a NUL.
    unsafe {
        let _ = options::source(source.pointer::<SourceOpts>());
        let _ = options::register(register.pointer::<RegisterOpts>());
        let _ = options::attach(attach.pointer::<AttachOpts>());
    }
});
