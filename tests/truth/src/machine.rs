// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! An emulated processor with flat memory: x86-64 or arm64, as [`siteseer_sites`] names registers.
//!
//! Programs run without an operating system. Everything that a program needs is mapped before; an access to anything
//! else ends the run with an error. Hooks see each execution of an address ([`Emulator::on_execution`]) and each write
//! to a range of memory ([`Emulator::on_write`]); they read registers and memory through a [`Cpu`].

use iced_x86::{Decoder, DecoderOptions};
use siteseer_sites::Machine;
use siteseer_sites::evaluate;
use siteseer_sites::location::Located;
use siteseer_sites::machine::Register;
use std::time::Duration;
use unicorn_engine::{Arch, HookType, Mode, Prot, RegisterARM64, RegisterX86, TlbType, Unicorn, uc_error};

/// Bytes of a page: mappings are multiples of it.
pub(crate) const PAGE: u64 = 0x1000;

/// Why the emulator stopped, or could not do something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmulatorError {
    /// The emulator itself cannot be used.
    #[error("cannot {action}: {error:?}")]
    Unusable {
        /// What was to be done.
        action: &'static str,
        /// The emulator's own code.
        error: uc_error,
    },
    /// The program did something that it may not do.
    #[error("stopped at {at:#x}: {error:?}")]
    Stopped {
        /// The program counter.
        at: u64,
        /// The emulator's own code.
        error: uc_error,
    },
    /// The program did not end.
    #[error("still running at {at:#x} after {limit:?}")]
    Endless {
        /// The program counter.
        at: u64,
        /// How long it was given.
        limit: Duration,
    },
}

fn unusable(action: &'static str) -> impl FnOnce(uc_error) -> EmulatorError {
    move |error| EmulatorError::Unusable { action, error }
}

/// The emulator's numbers of x86-64's registers, by DWARF number; the last is the return address column, `rip`.
const X86_64: [RegisterX86; 17] = [
    RegisterX86::RAX,
    RegisterX86::RDX,
    RegisterX86::RCX,
    RegisterX86::RBX,
    RegisterX86::RSI,
    RegisterX86::RDI,
    RegisterX86::RBP,
    RegisterX86::RSP,
    RegisterX86::R8,
    RegisterX86::R9,
    RegisterX86::R10,
    RegisterX86::R11,
    RegisterX86::R12,
    RegisterX86::R13,
    RegisterX86::R14,
    RegisterX86::R15,
    RegisterX86::RIP,
];

/// The same of arm64's.
const AARCH64: [RegisterARM64; 32] = [
    RegisterARM64::X0,
    RegisterARM64::X1,
    RegisterARM64::X2,
    RegisterARM64::X3,
    RegisterARM64::X4,
    RegisterARM64::X5,
    RegisterARM64::X6,
    RegisterARM64::X7,
    RegisterARM64::X8,
    RegisterARM64::X9,
    RegisterARM64::X10,
    RegisterARM64::X11,
    RegisterARM64::X12,
    RegisterARM64::X13,
    RegisterARM64::X14,
    RegisterARM64::X15,
    RegisterARM64::X16,
    RegisterARM64::X17,
    RegisterARM64::X18,
    RegisterARM64::X19,
    RegisterARM64::X20,
    RegisterARM64::X21,
    RegisterARM64::X22,
    RegisterARM64::X23,
    RegisterARM64::X24,
    RegisterARM64::X25,
    RegisterARM64::X26,
    RegisterARM64::X27,
    RegisterARM64::X28,
    RegisterARM64::X29,
    RegisterARM64::X30,
    RegisterARM64::SP,
];

/// The emulator's number of a register.
pub(crate) fn number(machine: Machine, register: Register) -> Option<i32> {
    let index = usize::from(register);
    match machine {
        Machine::X86_64 => X86_64.get(index).map(|register| (*register).into()),
        Machine::Aarch64 => AARCH64.get(index).map(|register| (*register).into()),
    }
}

/// The longest instruction of x86-64, in bytes.
const LONGEST: usize = 15;

/// `rcx`, which counts what is left of a repeated string instruction.
const COUNT: Register = 2;

/// Whether bytes of x86-64 begin with a repeated string instruction.
fn is_repeated(bytes: &[u8]) -> bool {
    let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// The processor as a hook sees it.
pub(crate) struct Cpu<'c, 'e, D> {
    machine: Machine,
    unicorn: &'c mut Unicorn<'e, D>,
}

impl<D> Cpu<'_, '_, D> {
    /// A register by DWARF number; 0 if there is no such register.
    pub(crate) fn register(&self, register: Register) -> u64 {
        number(self.machine, register).and_then(|number| self.unicorn.reg_read(number).ok()).unwrap_or(0)
    }

    /// Reads memory at an address into the whole buffer; `false` if any byte of it is not mapped.
    pub(crate) fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.unicorn.mem_read(address, buffer).is_ok()
    }

    /// The 8-byte slots of an argument at the place where the processor stands.
    pub(crate) fn evaluate(&self, located: &Located, displacement: u64) -> Option<Vec<u64>> {
        let registers = |register: Register| self.register(register);
        evaluate::evaluate(located, &registers, &mut |address, buffer| self.read(address, buffer), displacement)
    }

    /// The program counter.
    pub(crate) fn pc(&self) -> u64 {
        self.unicorn.pc_read().unwrap_or(0)
    }

    /// What the hooks share.
    pub(crate) fn data(&mut self) -> &mut D {
        self.unicorn.get_data_mut()
    }
}

/// An emulated processor. `D` is what the hooks share.
pub(crate) struct Emulator<'e, D> {
    machine: Machine,
    unicorn: Unicorn<'e, D>,
}

impl<'e, D: 'e> Emulator<'e, D> {
    /// A processor with no memory.
    pub(crate) fn new(machine: Machine, data: D) -> Result<Self, EmulatorError> {
        let (arch, mode) = match machine {
            Machine::X86_64 => (Arch::X86, Mode::MODE_64),
            Machine::Aarch64 => (Arch::ARM64, Mode::LITTLE_ENDIAN),
        };
        let mut unicorn = Unicorn::new_with_data(arch, mode, data).map_err(unusable("start the emulator"))?;
        // Without page tables, addresses are physical, and x86-64 has 52 bits of those. Kernel addresses are above.
        unicorn.ctl_set_tlb_type(TlbType::VIRTUAL).map_err(unusable("use all addresses"))?;
        Ok(Emulator { machine, unicorn })
    }

    /// Maps the pages that hold a range, to be read, written and executed.
    pub(crate) fn map(&mut self, address: u64, size: u64) -> Result<(), EmulatorError> {
        self.map_as(address, size, Prot::ALL)
    }

    /// Maps the pages that hold a range, to be read and written. The emulator takes a write to a page that can be
    /// executed for one that may change instructions, and may then run the instruction again, hooks included.
    pub(crate) fn map_data(&mut self, address: u64, size: u64) -> Result<(), EmulatorError> {
        self.map_as(address, size, Prot::READ | Prot::WRITE)
    }

    fn map_as(&mut self, address: u64, size: u64, protection: Prot) -> Result<(), EmulatorError> {
        let start = address / PAGE * PAGE;
        let end = (address + size).next_multiple_of(PAGE);
        self.unicorn.mem_map(start, end - start, protection).map_err(unusable("map memory"))
    }

    /// Writes memory that is mapped.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), EmulatorError> {
        self.unicorn.mem_write(address, bytes).map_err(unusable("write memory"))
    }

    /// Reads memory that is mapped.
    pub(crate) fn read(&self, address: u64, size: usize) -> Result<Vec<u8>, EmulatorError> {
        self.unicorn.mem_read_as_vec(address, size).map_err(unusable("read memory"))
    }

    /// Sets a register by DWARF number.
    pub(crate) fn set_register(&mut self, register: Register, value: u64) -> Result<(), EmulatorError> {
        let number = number(self.machine, register).ok_or(uc_error::ARG);
        number.and_then(|number| self.unicorn.reg_write(number, value)).map_err(unusable("write a register"))
    }

    /// Calls `hook` each time before the instruction at an address runs; that must be in memory. The emulator begins a
    /// repeated string instruction again for each element, which a processor without single steps does not.
    pub(crate) fn on_execution(
        &mut self,
        address: u64,
        mut hook: impl FnMut(&mut Cpu<'_, '_, D>) + 'e,
    ) -> Result<(), EmulatorError> {
        let machine = self.machine;
        let is_repeated = machine == Machine::X86_64 && is_repeated(&self.read(address, LONGEST)?);
        let mut left = None;
        self.unicorn
            .add_code_hook(address, address, move |unicorn, _, _| {
                let mut cpu = Cpu { machine, unicorn };
                if is_repeated {
                    let now = cpu.register(COUNT);
                    if left.replace(now).is_some_and(|left| left == now.wrapping_add(1)) {
                        return;
                    }
                }
                hook(&mut cpu);
            })
            .map_err(unusable("hook an instruction"))?;
        Ok(())
    }

    /// Calls `hook` with the value each time the program writes to a range of memory.
    pub(crate) fn on_write(
        &mut self,
        address: u64,
        size: u64,
        mut hook: impl FnMut(&mut Cpu<'_, '_, D>, u64) + 'e,
    ) -> Result<(), EmulatorError> {
        let machine = self.machine;
        self.unicorn
            .add_mem_hook(HookType::MEM_WRITE, address, address + size - 1, move |unicorn, _, _, _, value| {
                hook(&mut Cpu { machine, unicorn }, value as u64);
                true
            })
            .map_err(unusable("hook a write"))?;
        Ok(())
    }

    /// Calls `hook` before each block of code; if it returns false, the run ends.
    pub(crate) fn on_block(&mut self, mut hook: impl FnMut(&mut D) -> bool + 'e) -> Result<(), EmulatorError> {
        self.unicorn
            .add_block_hook(1, 0, move |unicorn, _, _| {
                if !hook(unicorn.get_data_mut()) {
                    // A run that cannot be ended here ends by its limit of time.
                    let _ = unicorn.emu_stop();
                }
            })
            .map_err(unusable("hook blocks"))?;
        Ok(())
    }

    /// Runs from an address until another one is reached. (A limit of instructions would cost a hook at each of them.)
    pub(crate) fn run(&mut self, from: u64, until: u64, limit: Duration) -> Result<(), EmulatorError> {
        let outcome = self.unicorn.emu_start(from, until, limit.as_micros() as u64, 0);
        let at = self.unicorn.pc_read().unwrap_or(0);
        match outcome {
            Err(error) => Err(EmulatorError::Stopped { at, error }),
            Ok(()) if at != until => Err(EmulatorError::Endless { at, limit }),
            Ok(()) => Ok(()),
        }
    }

    /// What the hooks share.
    pub(crate) fn data_mut(&mut self) -> &mut D {
        self.unicorn.get_data_mut()
    }
}
