// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Frames of stacks in the output of other programs.
//!
//! | from | a line |
//! |---|---|
//! | `perf script` | `ffffffff81234567 vfs_read+0x1f ([kernel.kallsyms])`, and in a module `([nf_tables])` |
//! | bpftrace, `kstack` | `vfs_read+31` |
//! | bpftrace, `kstack(perf)` | `ffffffff81234567 vfs_read+31` |
//! | bpftrace, `kstack(raw)` | `ffffffff81234567` |
//! | the kernel's log | `[   12.345678]  ? vfs_read+0x1f/0x80 [nf_tables]`, `RIP: 0010:vfs_read+0x1f/0x80` |
//!
//! A line that has anything else in it is not a frame. Frames of user space are not ours: perf says for each in which
//! file it is.

use super::query::{At, Query, address, hexadecimal, module_in_brackets, symbol};

/// A line that is a frame of a kernel's stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StackLine<'l> {
    /// What it is indented with.
    pub(super) indent: &'l str,
    /// The address, if the line has one besides the symbol: at run time.
    pub(super) address: Option<u64>,
    /// The address as the line has it.
    pub(super) digits: &'l str,
    pub(super) query: Query,
    /// Whether the address is known to be that of an instruction, or of the one after a call. If that is not known, it
    /// depends on the place in the stack: the first one is an instruction.
    pub(super) returns: Option<bool>,
}

/// The line as a frame, if it is one.
pub(super) fn frame(line: &str) -> Option<StackLine<'_>> {
    let text = line.trim_start();
    let indent = &line[..line.len() - text.len()];
    let (text, file) = match text.trim_end().strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((text, file)) => (text, Some(of_file(file)?)),
        None => (text.trim_end(), None),
    };
    let (text, mut module) = match text.rsplit_once(" [") {
        Some((before, _)) if text.ends_with(']') && !before.is_empty() => {
            (before, Some(module_in_brackets(&text[before.len() + 1..])?.to_owned()))
        }
        _ => (text, None),
    };
    if let Some(InFile::Module(name)) = file {
        module = Some(name);
    }
    // perf has a name for what has none.
    module = module.filter(|name| name != "unknown");
    let mut words = text.split_whitespace().rev();
    let last = words.next()?;
    let (last, is_instruction) = match last.split_once(':') {
        // RIP: 0010:vfs_read+0x1f/0x80
        Some((segment, rest)) if hexadecimal(segment).is_some() => (rest, true),
        Some(_) => return None,
        None => (last, false),
    };
    let mut found =
        StackLine { indent, address: None, digits: "", query: Query { module, at: At::Address(0) }, returns: None };
    match symbol(last) {
        Some(at) if last.contains('+') => found.query.at = at,
        // Without an offset, any word could be a symbol.
        _ => {
            let address = address(last).filter(|_| !is_instruction)?;
            (found.address, found.digits, found.query.at) = (Some(address), last, At::Address(address));
        }
    }
    if is_instruction {
        found.returns = Some(false);
    } else if let At::Symbol { offset, size: Some(_), .. } = found.query.at {
        found.returns = Some(offset != 0);
    }
    for word in words {
        match word {
            "?" | "[" => {}
            "RIP:" if is_instruction => {}
            "pc" if found.returns.is_some() => found.returns = Some(false),
            "lr" | ":" if found.returns.is_some() => {}
            _ if is_time(word) || is_bracketed_address(word) => {}
            _ if found.digits.is_empty() => {
                // perf prints as many digits as the address has.
                let digits = word.strip_prefix("0x").unwrap_or(word);
                found.address = Some(hexadecimal(digits).filter(|_| digits.len() >= 8)?);
                found.digits = word;
            }
            _ => return None,
        }
    }
    Some(found)
}

/// The kernel's time before a line: `12.345678]`, or `[12345.678901]`.
fn is_time(word: &str) -> bool {
    let inside = word.strip_suffix(']').map(|word| word.trim_start_matches('['));
    inside.and_then(|time| time.split_once('.')).is_some_and(|(seconds, rest)| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number(seconds) && is_number(rest)
    })
}

/// `[<ffffffff81234567>]`, as older kernels print addresses.
fn is_bracketed_address(word: &str) -> bool {
    let inside = word.strip_prefix("[<").and_then(|word| word.strip_suffix(">]"));
    inside.is_some_and(|digits| hexadecimal(digits).is_some())
}

/// The file that perf says a frame is in.
#[derive(Debug, PartialEq, Eq)]
enum InFile {
    Image,
    Module(String),
}

/// `[kernel.kallsyms]`, `/usr/lib/debug/boot/vmlinux-6.1`, `[nf_tables]`,
/// `/lib/modules/6.1/kernel/net/nf_tables.ko.xz`. `None` for all that is not the kernel's.
fn of_file(file: &str) -> Option<InFile> {
    let name = file.rsplit('/').next().unwrap_or(file);
    if file.starts_with("[kernel.") || name.starts_with("vmlinux") {
        return Some(InFile::Image);
    }
    if let Some((stem, _)) = name.split_once(".ko").filter(|(stem, _)| !stem.is_empty()) {
        return Some(InFile::Module(stem.replace('-', "_")));
    }
    match module_in_brackets(file)? {
        // What is mapped into a process, and what perf cannot tell.
        "vdso" | "vsyscall" | "vvar" | "heap" | "stack" | "unknown" | "uprobes" | "anon" | "guest.kernel.kallsyms" => {
            None
        }
        module => Some(InFile::Module(module.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        let Some(found) = frame(line) else { return "none".to_owned() };
        let size = match found.query.at {
            At::Symbol { size: Some(size), .. } => format!("/{size:#x}"),
            _ => String::new(),
        };
        let address = found.address.map_or(String::new(), |address| format!(" at {address:#x}"));
        let returns = found.returns.map_or(String::new(), |returns| format!(" returns {returns}"));
        format!("{}{size}{address}{returns}", found.query)
    }

    #[test]
    fn perf_script() {
        assert_eq!(
            shown("\t    ffffffff81234567 vfs_read+0x1f ([kernel.kallsyms])"),
            "vfs_read+0x1f at 0xffffffff81234567"
        );
        assert_eq!(shown("ffffffffc0123456 nf_hook+0x7 ([nf_tables])"), "nf_tables:nf_hook+0x7 at 0xffffffffc0123456");
        assert_eq!(
            shown("ffffffffc0123456 nf_hook+0x7 (/lib/modules/6.1/kernel/net/nf-tables.ko.xz)"),
            "nf_tables:nf_hook+0x7 at 0xffffffffc0123456"
        );
        assert_eq!(
            shown("ffffffff81234567 vfs_read+0x1f (/usr/lib/debug/boot/vmlinux-7.3)"),
            "vfs_read+0x1f at 0xffffffff81234567"
        );
        assert_eq!(
            shown("ffffffff81234567 vfs_read+0x1f ([kernel.kallsyms]_text)"),
            "vfs_read+0x1f at 0xffffffff81234567"
        );
        assert_eq!(
            shown("  ffffffff81234567 [unknown] ([kernel.kallsyms])"),
            "0xffffffff81234567 at 0xffffffff81234567"
        );
        for user in [
            "    7f1234567890 __libc_start_main+0x80 (/usr/lib/x86_64-linux-gnu/libc.so.6)",
            "    7fff12345678 __vdso_gettimeofday+0x1 ([vdso])",
            "        55d512345678 [unknown] ([unknown])",
            "perf 12345 [001] 123456.789012: cycles:P: ",
            "swapper     0 [000]  1234.567890:     250000 cpu-clock:pppH: ",
            "",
        ] {
            assert_eq!(shown(user), "none", "{user}");
        }
    }

    #[test]
    fn bpftrace() {
        assert_eq!(shown("    vfs_read+1"), "vfs_read+0x1");
        assert_eq!(shown("    nf_hook+31 [nf_tables]"), "nf_tables:nf_hook+0x1f");
        assert_eq!(shown("\tffffffffb4019501 do_mmap+1"), "do_mmap+0x1 at 0xffffffffb4019501");
        assert_eq!(shown("  ffffffffb4019501"), "0xffffffffb4019501 at 0xffffffffb4019501");
        for other in [
            "@[",
            "]: 12",
            "@[vfs_read]: 5",
            "Attaching 1 probe...",
            "@count: 12",
            "a+b",
            "comm vfs_read+1",
            "@x[3+4]: 5",
        ] {
            assert_eq!(shown(other), "none", "{other}");
        }
    }

    #[test]
    fn the_kernels_log() {
        assert_eq!(shown("[   12.345678]  vfs_read+0x1f/0x80"), "vfs_read+0x1f/0x80 returns true");
        assert_eq!(shown("[12345.678901]  ? nf_hook+0x1/0x2 [nf_tables]"), "nf_tables:nf_hook+0x1/0x2 returns true");
        assert_eq!(shown(" nf_hook+0x1/0x2 [nf_tables 0123456789abcdef]"), "nf_tables:nf_hook+0x1/0x2 returns true");
        assert_eq!(shown("[    1.0] RIP: 0010:vfs_read+0x1f/0x80"), "vfs_read+0x1f/0x80 returns false");
        assert_eq!(shown("[    1.0] pc : vfs_read+0x1f/0x80"), "vfs_read+0x1f/0x80 returns false");
        assert_eq!(shown("[    1.0] lr : vfs_read+0x1f/0x80"), "vfs_read+0x1f/0x80 returns true");
        assert_eq!(shown(" [<ffffffff81234567>] vfs_read+0x1f/0x80"), "vfs_read+0x1f/0x80 returns true");
        assert_eq!(shown("[    1.0]  vfs_read+0x0/0x80"), "vfs_read+0x0/0x80 returns false");
        for other in [
            "[    1.0] Call Trace:",
            "[    1.0]  <TASK>",
            "[    1.0] RAX: 0000000000000000 RBX: ffff888100000000 RCX: 00",
        ] {
            assert_eq!(shown(other), "none", "{other}");
        }
    }

    #[test]
    fn what_is_before_a_frame_is_kept() {
        let found = frame("\t  ffffffffb4019501 do_mmap+1").unwrap();
        assert_eq!((found.indent, found.digits), ("\t  ", "ffffffffb4019501"));
    }
}
