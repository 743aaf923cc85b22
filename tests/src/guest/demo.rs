// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The guest's half of `ci/demo`: `siteseer trace` on three functions, while a small workload calls them.

use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use std::ffi::CString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Where the tool lies in the guest.
pub const TOOL: &str = "/bin/siteseer";
/// A function that has no symbol, one with a body and inlined copies, and one that is only a clone.
pub const FUNCTIONS: [&str; 3] = ["__bpf_copy_key", "ns_capable", "kill_something_info"];

/// Traces the workload; what the tool prints goes to `results`.
///
/// # Errors
/// If the tool cannot be started or fails, or the workload's calls do.
pub fn run(results: &mut impl Write) -> Result<(), Failure> {
    let mut tool = Command::new(TOOL)
        .arg("trace")
        .args(FUNCTIONS)
        .args(["--where", "comm=workload"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{TOOL}: {error}"))?;
    let traced = follow(&mut tool, results);
    if traced.is_err() {
        // The tool is of no more use, whether or not it still runs.
        let _ = tool.kill();
    }
    let status = tool.wait()?;
    traced?;
    if status.success() { Ok(()) } else { Err(format!("siteseer trace ended with {status}").into()) }
}

fn follow(tool: &mut Child, results: &mut impl Write) -> Result<(), Failure> {
    let mut output = BufReader::new(tool.stdout.take().ok_or("no output")?);
    let mut messages = tool.stderr.take().ok_or("no messages")?;
    // The heading comes when everything is attached.
    let mut heading = String::new();
    output.read_line(&mut heading)?;
    if heading.is_empty() {
        let mut text = String::new();
        messages.read_to_string(&mut text)?;
        return Err(text.into());
    }
    let pid = tool.id();
    let caller = thread::spawn(move || -> io::Result<()> {
        let worked = workload();
        // Records travel through a buffer that the tool looks into every tenth of a second.
        thread::sleep(Duration::from_millis(500));
        syscall(libc::SYS_kill, [u64::from(pid), libc::SIGINT as u64, 0, 0, 0, 0])?;
        worked
    });
    let mut calls = String::new();
    output.read_to_string(&mut calls)?;
    caller.join().map_err(|_| "the workload panicked")??;
    let mut text = String::new();
    messages.read_to_string(&mut text)?;
    // What is attached was said before the heading, what was lost after the calls.
    let (losses, attached): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.contains(" calls "));
    for line in attached {
        writeln!(results, "{line}")?;
    }
    write!(results, "{heading}{calls}")?;
    for line in losses {
        writeln!(results, "{line}")?;
    }
    Ok(())
}

/// Calls each function in each of its ways.
fn workload() -> io::Result<()> {
    let name = CString::new("workload")?;
    syscall(libc::SYS_prctl, [libc::PR_SET_NAME as u64, name.as_ptr() as u64, 0, 0, 0, 0])?;
    let root = CString::new("/")?;
    let nowhere = CString::new("/nowhere")?;
    for key_size in [4u32, 12] {
        // BPF_MAP_CREATE of a hash map.
        let words = [1u32, key_size, 8, 16, 0];
        let attributes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let map = syscall(libc::SYS_bpf, [0, attributes.as_ptr() as u64, attributes.len() as u64, 0, 0, 0])?;
        let key = vec![1u8; key_size as usize];
        let mut value = [0u8; 8];
        // BPF_MAP_LOOKUP_ELEM, BPF_MAP_GET_NEXT_KEY: of an empty map, so that neither finds anything.
        for command in [1u64, 4] {
            let mut attributes = [0u8; 32];
            attributes[..4].copy_from_slice(&(map as u32).to_le_bytes());
            attributes[8..16].copy_from_slice(&(key.as_ptr() as u64).to_le_bytes());
            attributes[16..24].copy_from_slice(&(value.as_mut_ptr() as u64).to_le_bytes());
            let _ = syscall(libc::SYS_bpf, [command, attributes.as_ptr() as u64, 32, 0, 0, 0]);
        }
        syscall(libc::SYS_close, [map as u64, 0, 0, 0, 0, 0])?;
        syscall(libc::SYS_chroot, [root.as_ptr() as u64, 0, 0, 0, 0, 0])?;
        // There is no such file; only the permission is asked for.
        let _ = syscall(libc::SYS_swapoff, [nowhere.as_ptr() as u64, 0, 0, 0, 0, 0]);
        syscall(libc::SYS_kill, [u64::from(std::process::id()), u64::from(key_size == 12) * 28, 0, 0, 0, 0])?;
    }
    Ok(())
}
