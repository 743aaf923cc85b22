// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The kernel's tables: parts of the input, with NULs between, are `/proc/kallsyms`, `/proc/modules`, ftrace's list as
//! addresses and as names, the blacklist, and the notes with the build id.
#![no_main]

use siteseer::internals::kernel::build_id;
use siteseer::internals::symbols::{Ftrace, Symbols, parse_blacklist, parse_modules};

siteseer_fuzz::target!(|data| {
    let mut parts = data.splitn(6, |&byte| byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (kallsyms, modules, addresses) = (next(), next(), next());
    let (names, blacklist, notes) = (next(), next(), next());
    let text = |bytes| String::from_utf8_lossy(bytes);
    let symbols = Symbols::parse(kallsyms);
    let read = Symbols::read(kallsyms).expect("memory can be read");
    assert!(symbols.iter().map(|symbol| symbol.address).eq(read.iter().map(|symbol| symbol.address)));
    let ftrace =
        if names.is_empty() { Ftrace::parse_addresses(&text(addresses)) } else { Ftrace::parse_names(&text(names)) };
    let symbols = symbols.with_ftrace(ftrace).with_blacklist(parse_blacklist(&text(blacklist)));
    let symbols = symbols.with_modules(parse_modules(&text(modules)));
    assert!(symbols.iter().map(|symbol| symbol.address).is_sorted());
    for symbol in symbols.iter().take(64) {
        assert!(symbols.named(symbol.name).any(|other| other.address == symbol.address));
        assert!(symbols.at(symbol.address).next().is_some());
        let _ = symbols.suffixed(symbol.name).count();
        for address in [symbol.address, symbol.address.wrapping_add(1), symbol.address.wrapping_sub(1)] {
            let size = symbols.containing(address).map_or(16, |containing| containing.size);
            let _ = (symbols.traceable(address, size), symbols.notrace(address), symbols.blacklisted(address));
            let _ = symbols.ends_module(address);
        }
    }
    let _ = (symbols.is_restricted(), symbols.modules().len(), build_id(notes));
});
