// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a user of bpftrace wishes for, and the commands for it. The functions are those of Debian's 7.3 amd64 kernel.
//!
//! `calls mixed` calls `ns_capable()` five times: three times its body, by chroot(2), and twice the copy in
//! `capable()`, by swapoff(2). Each of these calls is one of `ns_capable_common()` too, which only has copies. Besides,
//! it opens three files, and two of them do not exist; each open(2) calls `do_sys_open()` in a copy. Four read(2) of 1,
//! 100, 100 and 5,000 bytes call `vfs_read()`, which only has a body, and `file_ppos()`, which only has copies. `calls
//! sync` calls `vfs_fsync_range()` nine times: four times its body, and five times the copy in `do_fsync()`.

use super::Seen::{self, Column, First, Histogram, Last, Lines, Names, Second};
use super::{Round, Tool};

/// What perf needs to be told before the calls are made.
#[derive(Debug, Clone, Copy)]
pub enum Probe {
    /// Nothing.
    None,
    /// This probe, with the image's DWARF at hand.
    Dwarf(&'static str),
    /// This probe, with nothing but the running kernel's symbols.
    Symbols(&'static str),
}

/// perf's commands.
#[derive(Debug, Clone, Copy)]
pub struct Perf {
    /// Its probe.
    pub probe: Probe,
    /// What makes the calls.
    pub command: &'static str,
    /// What prints them, if that is another command.
    pub after: Option<&'static str>,
    /// How the calls are read from it.
    pub seen: Seen,
}

/// A wish.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// Its name.
    pub title: &'static str,
    /// What is to be done, and what calls there are.
    pub task: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// How many there are.
    pub made: u64,
    /// The calls, as arguments of `calls`.
    pub calls: &'static str,
    /// Whether there is no site data.
    pub without_site_data: bool,
    /// siteseer's arguments.
    pub siteseer: (&'static str, Seen),
    /// bpftrace's arguments.
    pub bpftrace: (&'static str, Seen),
    /// perf's.
    pub perf: Perf,
    /// retsnoop's arguments.
    pub retsnoop: (&'static str, Seen),
}

/// Prints the records of perf.data.
const SCRIPT: Option<&str> = Some("perf script");

/// All ten.
pub const WISHES: [Wish; 10] = [
    Wish {
        title: "Patterns",
        task: "Count the calls of all functions `ns_capable*`. There are 10 calls: 3 of a body, 7 of inlined copies.",
        unit: "calls",
        made: 10,
        calls: "mixed",
        without_site_data: false,
        siteseer: ("trace 'ns_capable*' --where 'comm = workload' --count", First("ns_capable")),
        bpftrace: (r#"-e 'fentry:ns_capable* /comm == "workload"/ { @[probe] = count(); }'"#, Last("]: ")),
        perf: Perf {
            probe: Probe::Dwarf("ns_capable*"),
            command: r#"perf stat --log-fd 1 -e 'probe:*' --filter 'comm == "workload"' calls mixed"#,
            after: None,
            seen: First("probe:"),
        },
        retsnoop: ("-e 'ns_capable*' -S -n workload", Lines(" ns_capable")),
    },
    Wish {
        title: "Functions by pattern, with the number of sites",
        task: "List the functions `ns_capable*`. The source has 4; one of them has inlined copies alone.",
        unit: "functions",
        made: 4,
        calls: "",
        without_site_data: false,
        siteseer: ("list 'ns_capable*'", Names("  ns_capable")),
        bpftrace: ("-l 'fentry:ns_capable*'", Names("ns_capable")),
        perf: Perf {
            probe: Probe::None,
            command: "perf probe --funcs=ns_capable*",
            after: None,
            seen: Names("ns_capable"),
        },
        retsnoop: ("-e 'ns_capable*' --dry-run -v", Lines("(dry run) to function #")),
    },
    Wish {
        title: "Return values and errors",
        task: "Print the calls of `do_sys_openat2()` that fail, with their errors. It has a body alone: inlining does not \
               matter. 2 of 3 calls fail.",
        unit: "calls",
        made: 2,
        calls: "mixed",
        without_site_data: false,
        siteseer: (
            "trace do_sys_openat2 --returns --where 'comm = workload and retval < 0'",
            Lines(" do_sys_openat2("),
        ),
        bpftrace: (
            r#"-e 'fexit:do_sys_openat2 /comm == "workload" && (int64)retval < 0/ { printf("%s = %ld\n", func, retval); }'"#,
            Lines(" = -"),
        ),
        perf: Perf {
            probe: Probe::Dwarf("do_sys_openat2%return result=$retval:s64"),
            command: r#"perf record -q -o perf.data -e 'probe:*' --filter 'comm == "workload" && result < 0' calls mixed"#,
            after: SCRIPT,
            seen: Lines("probe:"),
        },
        retsnoop: ("-e do_sys_openat2 -n workload", Lines(" do_sys_openat2")),
    },
    Wish {
        title: "Latency and histograms",
        task: "Print a histogram of the times that `vfs_fsync_range()` takes. There are 9 calls: 4 of the body, 5 of an \
               inlined copy. A copy has no return, so nothing can time its calls.",
        unit: "calls",
        made: 9,
        calls: "sync",
        without_site_data: false,
        siteseer: ("trace vfs_fsync_range --latency --where 'comm = workload'", Histogram),
        bpftrace: (
            r#"-e 'fentry:vfs_fsync_range /comm == "workload"/ { @begin[tid] = nsecs; } fexit:vfs_fsync_range /@begin[tid]/ { @ns = hist((int64)nsecs - (int64)@begin[tid]); delete(@begin, tid); }'"#,
            Histogram,
        ),
        perf: Perf {
            probe: Probe::None,
            command: "perf ftrace latency -a -T vfs_fsync_range calls sync",
            after: None,
            seen: Column,
        },
        retsnoop: ("-e vfs_fsync_range -S -n workload", Lines(" vfs_fsync_range")),
    },
    Wish {
        title: "Stack traces",
        task: "Print from where `ns_capable()` is called. There are 5 calls: 3 of the body, 2 of an inlined copy.",
        unit: "calls",
        made: 5,
        calls: "mixed",
        without_site_data: false,
        siteseer: ("trace ns_capable --stack --where 'comm = workload'", Lines(" ns_capable(")),
        bpftrace: (r#"-e 'fentry:ns_capable /comm == "workload"/ { @[kstack] = count(); }'"#, Last("]: ")),
        perf: Perf {
            probe: Probe::Dwarf("ns_capable"),
            command: r#"perf record -q -o perf.data -g -e 'probe:*' --filter 'comm == "workload"' calls mixed"#,
            after: SCRIPT,
            seen: Lines("probe:"),
        },
        retsnoop: ("-e ns_capable -S -n workload", Lines(" ns_capable")),
    },
    Wish {
        title: "Fields of structures",
        task: "Print the name of the file at each call of `file_ppos()`. All 4 calls are of an inlined copy; there is no \
               body.",
        unit: "calls",
        made: 4,
        calls: "mixed",
        without_site_data: false,
        siteseer: (
            "trace file_ppos --where 'comm = workload' --field 'file->f_path.dentry->d_name.name'",
            Lines("name=\"zero\""),
        ),
        bpftrace: (
            r#"-e 'fentry:file_ppos /comm == "workload"/ { printf("name=%s\n", str(args.file->f_path.dentry->d_name.name)); }'"#,
            Lines("name=zero"),
        ),
        perf: Perf {
            probe: Probe::Dwarf("file_ppos name=file->f_path.dentry->d_name.name:string"),
            command: r#"perf record -q -o perf.data -e 'probe:*' --filter 'comm == "workload"' calls mixed"#,
            after: SCRIPT,
            seen: Lines("name=\"zero\""),
        },
        retsnoop: ("-e file_ppos -S -A -n workload", Lines(" file_ppos")),
    },
    Wish {
        title: "Strings from user memory",
        task: "Print the file name at each call of `do_sys_open()`. All 3 calls are of an inlined copy; there is a body \
               too.",
        unit: "calls",
        made: 3,
        calls: "mixed",
        without_site_data: false,
        siteseer: ("trace do_sys_open --strings --where 'comm = workload'", Lines(" do_sys_open(")),
        bpftrace: (
            r#"-e 'fentry:do_sys_open /comm == "workload"/ { printf("open %s\n", str(uptr(args.filename))); }'"#,
            Lines("open "),
        ),
        perf: Perf {
            probe: Probe::Dwarf("do_sys_open filename:ustring"),
            command: r#"perf record -q -o perf.data -e 'probe:*' --filter 'comm == "workload"' calls mixed"#,
            after: SCRIPT,
            seen: Lines("probe:"),
        },
        retsnoop: ("-e do_sys_open -S -A -n workload", Lines(" do_sys_open")),
    },
    Wish {
        title: "Aggregation",
        task: "Count the calls of `ns_capable()` by the capability. There are 5 calls: 3 of the body, 2 of an inlined \
               copy.",
        unit: "calls",
        made: 5,
        calls: "mixed",
        without_site_data: false,
        siteseer: ("trace ns_capable --where 'comm = workload' --count cap", First("ns_capable")),
        bpftrace: (r#"-e 'fentry:ns_capable /comm == "workload"/ { @[args.cap] = count(); }'"#, Last("]: ")),
        perf: Perf {
            probe: Probe::Dwarf("ns_capable cap"),
            command: r#"perf record -q -o perf.data -e 'probe:*' --filter 'comm == "workload"' calls mixed"#,
            after: Some("perf report -q --stdio -n -s cap"),
            seen: Second("%"),
        },
        retsnoop: ("-e ns_capable -S -A -n workload", Lines(" ns_capable")),
    },
    Wish {
        title: "Filters in the kernel",
        task: "Print the calls of `vfs_read()` that are to read 100 bytes or more. It has a body alone: inlining does not \
               matter. These are 3 of 4 calls.",
        unit: "calls",
        made: 3,
        calls: "mixed",
        without_site_data: false,
        siteseer: ("trace vfs_read --where 'comm = workload and count >= 100'", Lines(" vfs_read(")),
        bpftrace: (
            r#"-e 'fentry:vfs_read /comm == "workload" && args.count >= 100/ { printf("read %d\n", args.count); }'"#,
            Lines("read "),
        ),
        perf: Perf {
            probe: Probe::Dwarf("vfs_read count"),
            command: r#"perf record -q -o perf.data -e 'probe:*' --filter 'comm == "workload" && count >= 100' calls mixed"#,
            after: SCRIPT,
            seen: Lines("probe:"),
        },
        retsnoop: ("-e vfs_read -S -A -n workload", Lines(" vfs_read")),
    },
    Wish {
        title: "Without site data",
        task: "Count the calls of `ns_capable()`, with neither site data nor debug information. There are 5 calls: 3 of \
               the body, 2 of an inlined copy.",
        unit: "calls",
        made: 5,
        calls: "mixed",
        without_site_data: true,
        siteseer: ("trace ns_capable --where 'comm = workload' --count", First("ns_capable")),
        bpftrace: (r#"-e 'kprobe:ns_capable /comm == "workload"/ { @ = count(); }'"#, Last("@: ")),
        perf: Perf {
            probe: Probe::Symbols("ns_capable"),
            command: r#"perf stat --log-fd 1 -e 'probe:*' --filter 'comm == "workload"' calls mixed"#,
            after: None,
            seen: First("probe:"),
        },
        retsnoop: ("-e ns_capable -S -n workload", Lines(" ns_capable")),
    },
];

impl Wish {
    /// How the calls are read from a tool's output.
    pub fn seen(&self, tool: Tool) -> Seen {
        match tool {
            Tool::Siteseer => self.siteseer.1,
            Tool::Bpftrace => self.bpftrace.1,
            Tool::Perf => self.perf.seen,
            Tool::Retsnoop => self.retsnoop.1,
        }
    }

    /// What a tool is asked, without its probes.
    pub fn round(&self, wish: usize, tool: Tool, probes: Vec<String>) -> Round {
        let of = |arguments: &str| format!("{} {arguments}", tool.name());
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let command = match tool {
            Tool::Siteseer => of(self.siteseer.0),
            Tool::Bpftrace => of(self.bpftrace.0),
            Tool::Retsnoop => of(self.retsnoop.0),
            Tool::Perf => {
                if let Probe::Symbols(probe) = self.perf.probe {
                    before.push(of(&format!("probe '{probe}'")));
                }
                after.extend(self.perf.after.map(str::to_owned));
                self.perf.command.to_owned()
            }
        };
        let calls = if tool == Tool::Perf { "" } else { self.calls }.to_owned();
        Round {
            wish,
            tool: Some(tool),
            probes,
            before,
            command,
            after,
            calls,
            without_site_data: self.without_site_data,
        }
    }
}
