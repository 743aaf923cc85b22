// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The records of the marker plugins: where the compiler had each parameter at the start of a copy of a function's
//! body.
//!
//! Their layout is in tests/truth/plugins/README.md. An operand is an instruction that would read it, so it is decoded,
//! not parsed. What cannot be decoded is an error of that operand; what breaks the layout is one of the whole section,
//! since nothing after it can be trusted.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use siteseer_sites::Machine;
use siteseer_sites::machine::Register;
use std::fmt;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Opcode, Operand as Arm64, SizeCode};

/// The section of the records.
pub(super) const SECTION: &str = ".debug_siteseer";

/// What the start of one copy of a function's body says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Where the copy's body starts.
    pub(super) address: u64,
    /// The function's name in the source.
    pub(super) function: &'a str,
    /// Its parameters, in order.
    pub(super) parameters: Vec<Parameter>,
}

/// What a record says about a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    /// Bytes of its type.
    pub(super) size: u32,
    /// What it is.
    pub(super) kind: ParameterKind,
    /// Where its value is, part by part from the first byte on. Empty if the compiler could not be asked.
    pub(super) parts: Vec<Part>,
}

/// What a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterKind {
    /// An unsigned number or a pointer.
    Unsigned,
    /// A signed number.
    Signed,
    /// A structure, union or array.
    Composite,
    /// Something that the plugin does not ask the compiler for.
    Unknown,
}

/// Some bytes of a parameter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// How many.
    pub(super) bytes: u8,
    /// Where they are.
    pub(super) operand: Result<Operand, OperandError>,
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// A constant; link-time addresses are constants too.
    Constant(u64),
    /// A register. Its low bytes are the value.
    Register(Register),
    /// Memory.
    Memory {
        /// A register that is added.
        base: Option<Register>,
        /// Another one, and its factor.
        index: Option<(Register, u8)>,
        /// What is added to them.
        displacement: u64,
    },
}

/// Why an operand is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum OperandError {
    /// It is an instruction other than those that the plugins write.
    #[error("not an instruction of a record: {0}")]
    Instruction(String),
    /// The compiler has the value in a register that has no DWARF number here.
    #[error("in register {0}")]
    Register(String),
}

/// Why the records cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{SECTION}, offset {offset:#x}: {kind}")]
pub(super) struct RecordError {
    /// Where.
    pub(super) offset: usize,
    /// What is wrong.
    pub(super) kind: RecordErrorKind,
}

/// What is wrong with the records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordErrorKind {
    /// The section ends within a record.
    #[error("the section ends within a record")]
    Truncated,
    /// A name is not UTF-8.
    #[error("the function's name is not text")]
    Name,
    /// No kind of parameters has that letter.
    #[error("{0:#x} is not a kind of parameter")]
    Kind(u8),
    /// The bytes of an operand are not an instruction.
    #[error("an operand is not an instruction")]
    Decode,
}

/// Reads all records of a section.
///
/// # Errors
/// If the section's layout is broken.
pub(super) fn read(section: &[u8], machine: Machine) -> Result<Vec<Record<'_>>, RecordError> {
    let mut reader = Reader { section, at: 0, machine };
    let mut records = Vec::new();
    while let Some(record) = reader.record()? {
        records.push(record);
    }
    Ok(records)
}

struct Reader<'a> {
    section: &'a [u8],
    at: usize,
    machine: Machine,
}

impl<'a> Reader<'a> {
    fn error<T>(&self, kind: RecordErrorKind) -> Result<T, RecordError> {
        Err(RecordError { offset: self.at, kind })
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        match self.section.get(self.at..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => self.error(RecordErrorKind::Truncated),
        }
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(4);
    }

    fn record(&mut self) -> Result<Option<Record<'a>>, RecordError> {
        self.align();
        if self.at >= self.section.len() {
            return Ok(None);
        }
        let address = u64::from_le_bytes(self.bytes()?);
        let function = self.name()?;
        let [count] = self.bytes()?;
        let parameters = (0..count).map(|_| self.parameter()).collect::<Result<_, _>>()?;
        Ok(Some(Record { address, function, parameters }))
    }

    fn name(&mut self) -> Result<&'a str, RecordError> {
        let rest = &self.section[self.at..];
        let Some(length) = rest.iter().position(|&byte| byte == 0) else {
            return self.error(RecordErrorKind::Truncated);
        };
        match std::str::from_utf8(&rest[..length]) {
            Ok(name) => {
                self.at += length + 1;
                Ok(name)
            }
            Err(_) => self.error(RecordErrorKind::Name),
        }
    }

    fn parameter(&mut self) -> Result<Parameter, RecordError> {
        let [letter] = self.bytes()?;
        let kind = match letter {
            b'u' => ParameterKind::Unsigned,
            b's' => ParameterKind::Signed,
            b'c' => ParameterKind::Composite,
            b'?' => ParameterKind::Unknown,
            other => return self.error(RecordErrorKind::Kind(other)),
        };
        let size = u32::from(u16::from_le_bytes(self.bytes()?));
        let mut parts = Vec::new();
        let mut left = if kind == ParameterKind::Unknown { 0 } else { size };
        while left > 0 {
            let bytes = match left {
                8.. => 8,
                4.. => 4,
                2.. => 2,
                _ => 1,
            };
            let operand = match self.machine {
                Machine::X86_64 => self.x86_operand(bytes)?,
                Machine::Aarch64 => self.arm64_operand()?,
            };
            parts.push(Part { bytes, operand });
            left -= u32::from(bytes);
        }
        Ok(Parameter { size, kind, parts })
    }

    /// `mov OPERAND, %rax`, or the part of it that is as wide as the value.
    fn x86_operand(&mut self, bytes: u8) -> Result<Result<Operand, OperandError>, RecordError> {
        // A record is linked as if the section were at address 0.
        let mut decoder = Decoder::with_ip(64, &self.section[self.at..], self.at as u64, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return self.error(RecordErrorKind::Decode);
        }
        self.at += instruction.len();
        Ok(x86_operand(&instruction, bytes))
    }

    /// `mov x0, REGISTER`.
    fn arm64_operand(&mut self) -> Result<Result<Operand, OperandError>, RecordError> {
        self.align();
        let word: [u8; 4] = self.bytes()?;
        let decoded = InstDecoder::default().decode(&mut U8Reader::new(&word));
        let Ok(instruction) = decoded else { return self.error(RecordErrorKind::Decode) };
        let other = || OperandError::Instruction(instruction.to_string());
        let [_, first, second, third] = instruction.operands;
        Ok(match (instruction.opcode, first, second, third) {
            (Opcode::ORR, Arm64::Register(SizeCode::X, 31), Arm64::RegShift(_, 0, SizeCode::X, from), _) => {
                Ok(if from == 31 { Operand::Constant(0) } else { Operand::Register(from) })
            }
            (Opcode::ADD, Arm64::RegisterOrSP(SizeCode::X, from), Arm64::Immediate(0), _) => {
                Ok(Operand::Register(from))
            }
            _ => Err(other()),
        })
    }
}

fn x86_operand(instruction: &Instruction, bytes: u8) -> Result<Operand, OperandError> {
    let other = || OperandError::Instruction(format!("{:?}", instruction.code()));
    if instruction.mnemonic() != Mnemonic::Mov || instruction.op_count() != 2 {
        return Err(other());
    }
    match instruction.op1_kind() {
        OpKind::Register => x86_register(instruction.op1_register()).map(Operand::Register),
        OpKind::Memory => {
            let is_flat = matches!(instruction.segment_prefix(), iced_x86::Register::None);
            if !is_flat {
                return Err(other());
            }
            let register = |register| match register {
                iced_x86::Register::None | iced_x86::Register::RIP => Ok(None),
                register => x86_register(register).map(Some),
            };
            let index = register(instruction.memory_index())?;
            Ok(Operand::Memory {
                base: register(instruction.memory_base())?,
                index: index.map(|index| (index, instruction.memory_index_scale() as u8)),
                displacement: instruction.memory_displacement64(),
            })
        }
        OpKind::Immediate8 | OpKind::Immediate16 | OpKind::Immediate32 | OpKind::Immediate64 => {
            Ok(Operand::Constant(instruction.immediate(1)))
        }
        OpKind::Immediate32to64 => Ok(Operand::Constant(instruction.immediate32to64() as u64)),
        _ => Err(other()),
    }
    .map(|operand| match operand {
        Operand::Constant(value) => {
            Operand::Constant(siteseer_sites::evaluate::extend(value, u32::from(bytes) * 8, false))
        }
        operand => operand,
    })
}

/// The DWARF number of a general purpose register, or of the one that this is a part of.
fn x86_register(register: iced_x86::Register) -> Result<Register, OperandError> {
    use iced_x86::Register as R;
    let is_high = matches!(register, R::AH | R::BH | R::CH | R::DH);
    let number = match register.full_register() {
        R::RAX => 0,
        R::RDX => 1,
        R::RCX => 2,
        R::RBX => 3,
        R::RSI => 4,
        R::RDI => 5,
        R::RBP => 6,
        R::RSP => 7,
        R::R8 => 8,
        R::R9 => 9,
        R::R10 => 10,
        R::R11 => 11,
        R::R12 => 12,
        R::R13 => 13,
        R::R14 => 14,
        R::R15 => 15,
        _ => return Err(OperandError::Register(format!("{register:?}"))),
    };
    if is_high { Err(OperandError::Register(format!("{register:?}"))) } else { Ok(number) }
}

impl Operand {
    /// The operand as text, with the machine's names of registers.
    pub(super) fn text(self, machine: Machine) -> String {
        let name = |register| machine.register_name(register).unwrap_or("?");
        match self {
            Operand::Constant(value) => format!("{value:#x}"),
            Operand::Register(register) => name(register).to_owned(),
            Operand::Memory { base, index, displacement } => {
                let mut terms: Vec<String> = base.into_iter().map(|base| name(base).to_owned()).collect();
                terms.extend(index.map(|(index, scale)| format!("{}*{scale}", name(index))));
                if displacement != 0 || terms.is_empty() {
                    terms.push(format!("{:#x}", displacement as i64));
                }
                format!("*({})", terms.join("+"))
            }
        }
    }
}

impl Parameter {
    /// Its operands as text.
    pub(super) fn text(&self, machine: Machine) -> String {
        let part = |part: &Part| match &part.operand {
            Ok(operand) => operand.text(machine),
            Err(error) => format!("({error})"),
        };
        self.parts.iter().map(part).collect::<Vec<_>>().join(":")
    }
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParameterKind::Unsigned => "unsigned",
            ParameterKind::Signed => "signed",
            ParameterKind::Composite => "composite",
            ParameterKind::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(records: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (index, (name, rest)) in records.iter().enumerate() {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend((0x1000 + index as u64).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.push(0);
            bytes.extend(*rest);
        }
        bytes
    }

    #[test]
    fn x86_operands_are_what_the_instruction_reads() {
        let record = section(&[
            (
                "f",
                &[
                    5, // parameters
                    b's', 4, 0, 0xb8, 7, 0, 0, 0, // mov $7, %eax
                    b'u', 1, 0, 0x88, 0xd8, // mov %bl, %al
                    b'u', 8, 0, 0x48, 0xc7, 0xc0, 0x10, 0, 0, 0x81, // mov $0xffffffff81000010, %rax
                    b'u', 8, 0, 0x48, 0x8b, 0x44, 0x24, 0x10, // mov 16(%rsp), %rax
                    b'c', 12, 0, 0x48, 0x89, 0xf8, 0x89, 0xf0, // mov %rdi, %rax; mov %esi, %eax
                ],
            ),
            ("g", &[1, b'?', 16, 0]),
        ]);
        let records = read(&record, Machine::X86_64).unwrap();
        let texts: Vec<_> = records[0].parameters.iter().map(|p| p.text(Machine::X86_64)).collect();
        assert_eq!(texts, ["0x7", "rbx", "0xffffffff81000010", "*(rsp+0x10)", "rdi:rsi"]);
        assert_eq!((records[0].address, records[0].function), (0x1000, "f"));
        assert_eq!((records[1].address, records[1].function), (0x1001, "g"));
        assert_eq!(records[1].parameters[0].kind, ParameterKind::Unknown);
        assert!(records[1].parameters[0].parts.is_empty());
    }

    #[test]
    fn arm64_operands_are_registers() {
        let mut record = section(&[("ab", &[2, b'u', 8, 0])]);
        record.resize(record.len().next_multiple_of(4), 0);
        record.extend(0xaa13_03e0_u32.to_le_bytes()); // mov x0, x19
        record.extend([b's', 4, 0, 0]);
        record.extend(0xaa1f_03e0_u32.to_le_bytes()); // mov x0, xzr
        let records = read(&record, Machine::Aarch64).unwrap();
        let operands: Vec<_> = records[0].parameters.iter().map(|p| p.parts[0].operand.clone().unwrap()).collect();
        assert_eq!(operands, [Operand::Register(19), Operand::Constant(0)]);
    }

    #[test]
    fn broken_records_are_errors() {
        for (bytes, kind) in [
            (section(&[("f", &[1])]), RecordErrorKind::Truncated),
            (section(&[("f", &[1, b'x', 8, 0])]), RecordErrorKind::Kind(b'x')),
            (section(&[("f", &[1, b'u', 8, 0, 0x06])]), RecordErrorKind::Decode),
            (vec![1, 2, 3], RecordErrorKind::Truncated),
            (vec![0; 8], RecordErrorKind::Truncated),
        ] {
            assert_eq!(read(&bytes, Machine::X86_64).unwrap_err().kind, kind);
        }
        let other = section(&[("f", &[1, b'u', 8, 0, 0x48, 0x01, 0xf8])]); // add %rdi, %rax
        let records = read(&other, Machine::X86_64).unwrap();
        assert!(matches!(records[0].parameters[0].parts[0].operand, Err(OperandError::Instruction(_))));
    }
}
