// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether the encoder and llvm-objdump agree on where control goes after each instruction of a kernel: `ci/census
//! --flow`.
//!
//! An edge that the encoder does not see is a call that is missed without a mark. Its decoders (iced-x86, yaxpeax-arm)
//! are other people's, but what it makes of them is its own. So each instruction that llvm-objdump prints is decoded by
//! the encoder too, and both must say the same: goes on, jumps, may jump, calls, and to which address; jumps to where a
//! register says; ends. On x86-64 they must also agree on where the next instruction begins.

use object::{Object, ObjectSection, elf};
use siteseer_encoder::elf::image::Image;
use siteseer_encoder::text::{Flow, flow_at};
use siteseer_kernels::KernelPaths;
use siteseer_sites::Machine;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Display};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// How many disagreements are kept.
const SHOWN: usize = 20;

/// What both can say about an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Next,
    Jump(u64),
    Conditional(u64),
    Call(u64),
    Indirect,
    Trap,
    Stop,
}

impl Control {
    fn word(self) -> &'static str {
        match self {
            Control::Next => "go on",
            Control::Jump(_) => "jump",
            Control::Conditional(_) => "may jump",
            Control::Call(_) => "call",
            Control::Indirect => "jump to a register",
            Control::Trap => "trap",
            Control::Stop => "end",
        }
    }
}

/// What the encoder says; `None` if it knows no such instruction.
fn ours(flow: Flow) -> Option<Control> {
    Some(match flow {
        Flow::Next | Flow::Nop | Flow::LandingPad => Control::Next,
        Flow::Jump(target) => Control::Jump(target),
        Flow::Conditional(target) => Control::Conditional(target),
        Flow::Call(target) => Control::Call(target),
        Flow::Indirect => Control::Indirect,
        Flow::Trap => Control::Trap,
        Flow::Stop => Control::Stop,
        Flow::Invalid => return None,
    })
}

/// A line of llvm-objdump, `ffffffff81000000: jmp 0xffffffff81000100 <name>` with tabs. `None` for other lines.
fn line(text: &str) -> Option<(u64, &str, &str)> {
    let (address, rest) = text.split_once(':')?;
    let address = u64::from_str_radix(address.trim_start(), 16).ok()?;
    let rest = rest.trim_start();
    let (mnemonic, operands) = rest.split_once(['\t', ' ']).unwrap_or((rest, ""));
    (!mnemonic.is_empty()).then(|| (address, mnemonic, operands.trim()))
}

/// The address that a branch goes to: its last operand, before the symbol in angle brackets.
fn target(operands: &str) -> Option<u64> {
    let operands = operands.split('<').next()?.trim();
    let last = operands.rsplit([',', ' ']).next()?.trim();
    u64::from_str_radix(last.strip_prefix("0x")?, 16).ok()
}

/// Prefixes of x86-64 instructions. llvm-objdump prints some on a line of their own.
const PREFIXES: [&str; 17] = [
    "lock", "rep", "repe", "repne", "notrack", "bnd", "data16", "addr32", "xacquire", "xrelease", "rex64", "cs", "ds",
    "es", "ss", "fs", "gs",
];

/// What an x86-64 instruction is, in AT&T syntax. `None` if llvm-objdump does not know it.
fn of_x86(mnemonic: &str, operands: &str) -> Option<Control> {
    if PREFIXES.contains(&mnemonic) && !operands.is_empty() {
        let (mnemonic, operands) = operands.split_once(['\t', ' ']).unwrap_or((operands, ""));
        return of_x86(mnemonic, operands.trim());
    }
    let stem = mnemonic.split(',').next()?;
    let is_indirect = operands.starts_with('*');
    Some(match stem {
        "<unknown>" | "(bad)" | ".byte" => return None,
        "jmp" | "jmpq" | "ljmp" | "ljmpl" | "ljmpq" if is_indirect => Control::Indirect,
        "jmp" | "jmpq" => Control::Jump(target(operands)?),
        "call" | "callq" | "lcall" | "lcallq" | "lcalll" if is_indirect => Control::Next,
        "call" | "callq" => Control::Call(target(operands)?),
        "loop" | "loope" | "loopne" => Control::Conditional(target(operands)?),
        "ud0" | "ud1" | "ud1l" | "ud1q" | "ud1w" | "ud2" | "int3" => Control::Trap,
        "ret" | "retq" | "lret" | "lretl" | "lretq" | "uiret" | "rsm" => Control::Stop,
        _ if stem.starts_with("iret") || stem.starts_with("sysret") || stem.starts_with("sysexit") => Control::Stop,
        _ if stem.starts_with('j') => Control::Conditional(target(operands)?),
        _ => Control::Next,
    })
}

/// What an arm64 instruction is. `None` if llvm-objdump does not know it.
fn of_arm64(mnemonic: &str, operands: &str) -> Option<Control> {
    Some(match mnemonic {
        "<unknown>" => return None,
        "b" => Control::Jump(target(operands)?),
        "cbz" | "cbnz" | "tbz" | "tbnz" => Control::Conditional(target(operands)?),
        "bl" => Control::Call(target(operands)?),
        "br" | "braa" | "braaz" | "brab" | "brabz" => Control::Indirect,
        "ret" | "retaa" | "retab" | "eret" | "eretaa" | "eretab" | "drps" => Control::Stop,
        "brk" | "hlt" | "udf" => Control::Trap,
        _ if mnemonic.starts_with("b.") || mnemonic.starts_with("bc.") => Control::Conditional(target(operands)?),
        _ => Control::Next,
    })
}

/// How many instructions of a kernel both decoders agree on.
#[derive(Debug, Clone, Default)]
pub struct Agreement {
    /// How many instructions do what, as both say.
    pub agreed: BTreeMap<&'static str, u64>,
    /// Those that llvm-objdump does not know.
    pub unknown: u64,
    /// How many they do not agree on.
    pub disagreed: u64,
    /// Some of these.
    pub examples: Vec<String>,
}

impl Agreement {
    /// Compares the decoders on all text of a kernel.
    ///
    /// # Errors
    /// If the image cannot be read, or llvm-objdump (the variable `LLVM_OBJDUMP`, or that of the path) fails.
    pub fn of(kernel: &KernelPaths) -> Result<Agreement, Box<dyn Error>> {
        let bytes = fs::read(&kernel.vmlinux)?;
        let image = Image::parse(&bytes)?;
        let tool = std::env::var_os("LLVM_OBJDUMP").unwrap_or_else(|| "llvm-objdump".into());
        let mut command = Command::new(&tool);
        command.args(["-d", "--no-show-raw-insn", "--no-leading-headers", "--mattr=+all"]).arg(&kernel.vmlinux);
        // x86-64 kernels have data in a section that is executable, too.
        for section in object::File::parse(&*bytes)?.sections() {
            if let object::SectionFlags::Elf { sh_flags, .. } = section.flags()
                && sh_flags & (elf::SHF_EXECINSTR | elf::SHF_WRITE) == elf::SHF_EXECINSTR
            {
                command.arg(format!("--section={}", section.name()?));
            }
        }
        let started = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = started.map_err(|error| format!("{}: {error}", tool.display()))?;
        let output = child.stdout.take().ok_or("llvm-objdump has no output")?;
        let mut agreement = Agreement::default();
        // Where the encoder says that the next instruction begins, and what the last one was.
        let mut expected: Option<(u64, String)> = None;
        // Where the prefixes of an instruction begin.
        let mut prefix = None;
        for text in BufReader::with_capacity(1 << 20, output).lines() {
            let text = text?;
            let Some((address, mnemonic, operands)) = line(&text) else {
                (expected, prefix) = (None, None);
                continue;
            };
            let is_prefix = operands.is_empty() && PREFIXES.contains(&mnemonic);
            if image.machine() == Machine::X86_64 && is_prefix {
                prefix = prefix.or(Some(address));
                continue;
            }
            let address = prefix.take().unwrap_or(address);
            // What is data, by the symbols that mark it.
            if mnemonic.starts_with('.') || mnemonic.len() == 2 && mnemonic.bytes().all(|byte| byte.is_ascii_hexdigit())
            {
                expected = None;
                continue;
            }
            if let Some((next, last)) = expected.take()
                && next != address
            {
                agreement.disagree(format!("{last}: the next instruction is at {next:#x}, not at {address:#x}"));
            }
            let theirs = match image.machine() {
                Machine::X86_64 => of_x86(mnemonic, operands),
                Machine::Aarch64 => of_arm64(mnemonic, operands),
            };
            let Some(theirs) = theirs else {
                agreement.unknown += 1;
                continue;
            };
            let Some((flow, next)) = flow_at(&image, address) else {
                agreement.disagree(format!("{text}: outside of the image's sections"));
                continue;
            };
            expected = Some((next, text.clone()));
            match ours(flow) {
                Some(ours) if ours == theirs => *agreement.agreed.entry(ours.word()).or_default() += 1,
                ours => agreement.disagree(format!("{text}: {ours:x?}, not {theirs:x?}")),
            }
        }
        let status = child.wait()?;
        if !status.success() || agreement.agreed.is_empty() {
            return Err(
                format!("{}: {status}, and {} kinds of instructions", tool.display(), agreement.agreed.len()).into()
            );
        }
        Ok(agreement)
    }

    fn disagree(&mut self, example: String) {
        self.disagreed += 1;
        if self.examples.len() < SHOWN {
            self.examples.push(example);
        }
    }
}

impl Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: u64 = self.agreed.values().sum();
        write!(f, "{all} instructions agreed (")?;
        for (nth, (word, count)) in self.agreed.iter().enumerate() {
            write!(f, "{}{word} {count}", if nth > 0 { ", " } else { "" })?;
        }
        write!(f, "), {} not known to llvm-objdump, {} disagreed", self.unknown, self.disagreed)?;
        self.examples.iter().try_for_each(|example| write!(f, "\n  {example}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_objdump() {
        let jump = "ffffffff81000000:      \tjmp\t0xffffffff81000100 <name>";
        let (address, mnemonic, operands) = line(jump).unwrap();
        assert_eq!(
            (address, of_x86(mnemonic, operands)),
            (0xffffffff81000000, Some(Control::Jump(0xffffffff81000100)))
        );
        assert_eq!(line("ffffffff81000000 <_text>:"), None);
        assert_eq!(line("Disassembly of section .text:"), None);
        let x86 = |text: &str| {
            of_x86(text.split_once(' ').map_or(text, |(m, _)| m), text.split_once(' ').map_or("", |(_, o)| o))
        };
        assert_eq!(x86("jne 0x10 <x>"), Some(Control::Conditional(0x10)));
        assert_eq!(x86("jne,pt 0x10"), Some(Control::Conditional(0x10)));
        assert_eq!(x86("notrack jmpq *%rax"), Some(Control::Indirect));
        assert_eq!(x86("callq *0x8(%rax)"), Some(Control::Next));
        assert_eq!(x86("rep movsb (%rsi), %es:(%rdi)"), Some(Control::Next));
        assert_eq!(x86("iretq"), Some(Control::Stop));
        assert_eq!(x86("<unknown>"), None);
        assert_eq!(
            of_arm64("tbz", "w0, #3, 0xffff800080000020 <a+0x20>"),
            Some(Control::Conditional(0xffff800080000020))
        );
        assert_eq!(of_arm64("bc.eq", "0x20"), Some(Control::Conditional(0x20)));
        assert_eq!(of_arm64("ldr", "x0, [x1]"), Some(Control::Next));
    }
}
