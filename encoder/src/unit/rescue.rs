// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Another place for a probe that the kernel would refuse where a copy is entered.
//!
//! The kernel patches some instructions itself (jump labels, static calls, alternatives), or decodes them when they
//! trap (BUG, WARN, kCFI's checks), and refuses probes there. Many bodies begin with such an instruction: each
//! tracepoint is a jump label. Control that comes to the entry in a straight line also passes the instructions before
//! it, and a probe at one of them sees the same calls.
//!
//! *Forward*, past the instruction that is refused, only if it computes and control always goes on after it: kCFI's
//! checks. After a jump label control may be elsewhere, after a trap the kernel's handler has run, and after a static
//! call the callee, which may have changed everything that the program would read.
//!
//! *Back*, past instructions that run exactly when the entry is reached ([`FunctionText::walk_back`]), are not calls,
//! and store nothing: what a program reads by way of an argument is then what it would read at the entry. An argument
//! that such an instruction computes is not there yet. It is unavailable, unless the instruction copies a register.

use crate::text::probeable::Prober;
use crate::text::{FunctionText, RegisterSet, register_copy};
use crate::unit::entry::registers_of;
use siteseer_sites::location::{Argument, Located, Location, Missing, Op};
use siteseer_sites::machine::Register;
use siteseer_sites::{Machine, Unprobeable};

/// An argument that is not where it is at the entry: which parameter, and where it is, or why it is missing.
pub(crate) type Changed = (usize, Result<Location, Missing>);

/// Another place for a probe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rescue {
    pub(crate) address: u64,
    /// The arguments that are not where they are at the entry.
    pub(crate) changed: Vec<Changed>,
}

impl Rescue {
    /// How many arguments the place does not have, and the entry has.
    fn lost(&self) -> u64 {
        self.changed.iter().filter(|(_, change)| change.is_err()).count() as u64
    }
}

/// Inline sites with a probe that would be refused because of the instruction where the copy is entered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefusedAtEntry {
    /// All of them.
    pub total: u64,
    /// Those with a probe after the instruction.
    pub forward: u64,
    /// Those with a probe before it.
    pub back: u64,
    /// Arguments of these that are located at the entry, and not where the probe is.
    pub arguments_lost: u64,
}

/// A probe that would be refused because of the instruction where it would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) address: u64,
    reason: Unprobeable,
    /// What another place is like, if there is one.
    rescued: Option<Rescued>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rescued {
    is_before: bool,
    arguments_lost: u64,
}

impl Refusal {
    pub(crate) fn new(reason: Unprobeable, address: u64, rescue: Option<&Rescue>) -> Refusal {
        let rescued =
            rescue.map(|rescue| Rescued { is_before: rescue.address < address, arguments_lost: rescue.lost() });
        Refusal { address, reason, rescued }
    }

    /// The same one, elsewhere.
    pub(crate) fn at(self, address: u64) -> Refusal {
        Refusal { address, ..self }
    }
}

/// How many sites there are with such a probe, by reason.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Refused([RefusedAtEntry; Unprobeable::ALL.len()]);

impl Refused {
    pub(crate) fn count<'r>(refusals: impl Iterator<Item = &'r Refusal>) -> Refused {
        let mut refused = Refused::default();
        for refusal in refusals {
            let Some(counts) = refused.0.get_mut(refusal.reason as usize - 1) else { continue };
            counts.total += 1;
            if let Some(rescued) = refusal.rescued {
                let side = if rescued.is_before { &mut counts.back } else { &mut counts.forward };
                *side += 1;
                counts.arguments_lost += rescued.arguments_lost;
            }
        }
        refused
    }

    pub(crate) fn plus(mut self, other: Refused) -> Refused {
        for (one, other) in self.0.iter_mut().zip(other.0) {
            one.total += other.total;
            one.forward += other.forward;
            one.back += other.back;
            one.arguments_lost += other.arguments_lost;
        }
        self
    }

    /// What was counted, by reason.
    pub(crate) fn by_reason(self) -> impl Iterator<Item = (Unprobeable, RefusedAtEntry)> {
        Unprobeable::ALL.into_iter().zip(self.0).filter(|(_, counts)| counts.total > 0)
    }
}

/// Whether the instruction itself is in the way, and another one near it may not be.
pub(crate) fn is_of_instruction(reason: Unprobeable) -> bool {
    matches!(
        reason,
        Unprobeable::JumpLabel
            | Unprobeable::StaticCall
            | Unprobeable::Bug
            | Unprobeable::NotAnInstruction
            | Unprobeable::CfiPreamble
            | Unprobeable::Unsteppable
    )
}

/// Looks for another place for a probe that is refused at `refused`, in a copy that is entered at `entry`. `arguments`
/// are those at `refused`.
pub(crate) fn find<'p>(
    text: &FunctionText<'_, '_>,
    machine: Machine,
    prober: &mut Prober<'_, '_>,
    entry: u64,
    refused: u64,
    arguments: impl Iterator<Item = &'p Argument> + Clone,
) -> Option<Rescue> {
    let is_near = |address: u64| address.abs_diff(entry) <= u64::from(u8::MAX);
    forward(text, prober, refused, arguments.clone(), is_near)
        .or_else(|| back(text, machine, prober, refused, arguments, is_near))
}

fn forward<'p>(
    text: &FunctionText<'_, '_>,
    prober: &mut Prober<'_, '_>,
    refused: u64,
    arguments: impl Iterator<Item = &'p Argument>,
    is_near: impl Fn(u64) -> bool,
) -> Option<Rescue> {
    let located = arguments.filter_map(|argument| argument.as_ref().ok());
    let needed = located.fold(RegisterSet::default(), registers_of);
    for step in text.walk_block(refused) {
        // A probe at a patch site of ftrace is another kind of probe, which not every architecture has.
        let is_traced = text.image().tables().ftrace.binary_search(&step.next).is_ok();
        if step.ends || step.stores || step.writes.meets(needed) || !is_near(step.next) || is_traced {
            return None;
        }
        if prober.check(text, step.next).is_none() {
            return Some(Rescue { address: step.next, changed: Vec::new() });
        }
    }
    None
}

fn back<'p>(
    text: &FunctionText<'_, '_>,
    machine: Machine,
    prober: &mut Prober<'_, '_>,
    refused: u64,
    arguments: impl Iterator<Item = &'p Argument> + Clone,
    is_near: impl Fn(u64) -> bool,
) -> Option<Rescue> {
    let original = || arguments.clone().map(|argument| argument.as_ref().ok());
    let mut places: Vec<Option<Located>> = original().map(|located| located.cloned()).collect();
    for step in text.walk_back(refused) {
        if step.stores || !is_near(step.address) {
            return None;
        }
        let copy = register_copy(text.image(), step.address);
        for place in &mut places {
            let is_written = |located: &Located| registers_of(RegisterSet::default(), located).meets(step.writes);
            if let Some(located) = place.take_if(|located| is_written(located)) {
                *place = copy.and_then(|(to, from)| before_copy(located, to, from, machine));
            }
        }
        if prober.check(text, step.address).is_none() {
            let pairs = original().zip(places).enumerate();
            let changed = pairs.filter_map(|(index, (before, now))| match (before, now) {
                (Some(before), Some(now)) => (before.at != now.at).then_some((index, Ok(now.at))),
                (Some(_), None) => Some((index, Err(Missing::Overwritten))),
                (None, _) => None,
            });
            return Some(Rescue { address: step.address, changed: changed.collect() });
        }
    }
    None
}

/// Where a value is before one register is copied to another, if it is computed from the copy.
fn before_copy(mut located: Located, to: Register, from: Register, machine: Machine) -> Option<Located> {
    // What is relative to the stack pointer is the stack's, and is judged as such.
    if [to, from].contains(&machine.stack_pointer()) {
        return None;
    }
    let replace = |register: &mut Register| {
        if *register == to {
            *register = from;
        }
    };
    match &mut located.at {
        Location::Constant(_) | Location::Address(_) => {}
        Location::Register(a) | Location::RegisterOffset(a, _) | Location::Memory(a, _) => replace(a),
        Location::RegisterPair(a, b) => {
            replace(a);
            replace(b);
        }
        Location::Computed(computed) => {
            for op in computed.slots.iter_mut().flatten() {
                if let Op::Register(register) = op {
                    replace(register);
                }
            }
        }
    }
    Some(located)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::image::Image;
    use crate::elf::test_image::{TEXT, TestImage, relative};
    use crate::text::Known;
    use siteseer_sites::location::Computed;

    const RAX: Register = 0;
    const RDX: Register = 1;
    const RBX: Register = 3;
    const RDI: Register = 5;

    fn at(at: Location) -> Argument {
        Ok(Located::certain(8, false, at))
    }

    /// Looks for another place for the probe of a copy that is entered at an offset of a function.
    fn rescue(
        machine: Machine,
        code: &[u8],
        add: impl FnOnce(&mut TestImage),
        entry: u64,
        at: &[Argument],
    ) -> Option<Rescue> {
        let mut test = TestImage::kernel(machine, code);
        test.function("f", TEXT, code.len() as u64);
        add(&mut test);
        let bytes = test.build();
        let image = Image::parse(&bytes).expect("a kernel");
        let range = TEXT..TEXT + code.len() as u64;
        let text = FunctionText::decode(&image, &[range], &Known::default());
        let mut prober = Prober::new(&image);
        assert!(prober.check(&text, TEXT + entry).is_some_and(is_of_instruction), "the probe is refused there");
        find(&text, machine, &mut prober, TEXT + entry, TEXT + entry, at.iter())
    }

    /// A jump label at an offset, which may jump to another one.
    fn jump(test: &mut TestImage, code: u64, target: u64) {
        let place = TEXT + 0x2000;
        let entry = [&relative(place, TEXT + code)[..], &relative(place + 4, TEXT + target), &[0; 8]].concat();
        test.table("__jump_table", "__start___jump_table", "__stop___jump_table", place, &entry);
    }

    fn x86(code: &[u8], entry: u64, arguments: &[Argument]) -> Option<(u64, Vec<Changed>)> {
        let label = |test: &mut TestImage| jump(test, entry, code.len() as u64 - 1);
        let found = rescue(Machine::X86_64, code, label, entry, arguments)?;
        Some((found.address - TEXT, found.changed))
    }

    const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

    /// `test %esi,%esi`, some instructions, a jump label, `mov %rdi,%rax`, `ret`.
    fn with_label(before: &[u8]) -> Vec<u8> {
        [&[0x85, 0xf6][..], before, &NOP5, &[0x48, 0x89, 0xf8, 0xc3]].concat()
    }

    // Proves S2.17.
    #[test]
    fn a_probe_is_put_before_a_jump_label() {
        // mov %eax,%edx
        let code = with_label(&[0x89, 0xc2]);
        assert_eq!(x86(&code, 4, &[at(Location::Register(RDI))]), Some((2, vec![])));
        let lost = Some((2, vec![(1, Err(Missing::Overwritten))]));
        assert_eq!(x86(&code, 4, &[at(Location::Register(RDI)), at(Location::Register(RDX))]), lost);
        assert_eq!(x86(&code, 4, &[Err(Missing::Empty), at(Location::RegisterPair(RDI, RDX))]), lost);
        let computed = Computed { slots: Box::new([Box::new([Op::Register(RDX), Op::Load(8)]) as Box<[Op]>]) };
        assert_eq!(x86(&code, 4, &[at(Location::Constant(3)), at(Location::Computed(computed))]), lost);
    }

    #[test]
    fn an_argument_that_is_copied_is_where_it_is_copied_from() {
        // mov %rbx,%rdi
        let code = with_label(&[0x48, 0x89, 0xdf]);
        let arguments = [at(Location::Register(RDI)), at(Location::Memory(RDI, 8)), at(Location::Register(RBX))];
        let changed = vec![(0, Ok(Location::Register(RBX))), (1, Ok(Location::Memory(RBX, 8)))];
        assert_eq!(x86(&code, 5, &arguments), Some((2, changed)));
        // mov %ebx,%edi: the upper half is not what it was.
        let code = with_label(&[0x89, 0xdf]);
        assert_eq!(x86(&code, 4, &arguments[..1]), Some((2, vec![(0, Err(Missing::Overwritten))])));
        // mov %rsp,%rdi
        let code = with_label(&[0x48, 0x89, 0xe7]);
        assert_eq!(x86(&code, 5, &arguments[..1]), Some((2, vec![(0, Err(Missing::Overwritten))])));
    }

    #[test]
    fn what_may_change_or_go_elsewhere_is_not_passed() {
        let none =
            |before: &[u8]| assert_eq!(x86(&with_label(before), 2 + before.len() as u64, &[]), None, "{before:x?}");
        none(&[0x89, 0x07]); // mov %eax,(%rdi)
        none(&[0x50]); // push %rax
        none(&[0xe8, 0, 0, 0, 0]); // call
        none(&[0x75, 0x00]); // jne to the label
        none(&[0xeb, 0x00]); // jmp there
        none(&[0x0f, 0x0b]); // ud2
        none(&[0xfa]); // cli
        none(&[0xf3, 0x90]); // pause
        none(&[0xf0, 0x0f, 0xc1, 0x07]); // lock xadd %eax,(%rdi)
    }

    #[test]
    fn nothing_else_leads_to_the_entry() {
        // 0: test %esi,%esi; 2: je 6; 4: mov %eax,%edx; 6: the label
        let code = with_label(&[0x74, 0x02, 0x89, 0xc2]);
        assert_eq!(x86(&code, 6, &[]), None, "a branch leads to the label");
        // 2: je 4; 4: mov %eax,%edx: both ways lead to it, and from there to the label.
        let code = with_label(&[0x74, 0x00, 0x89, 0xc2]);
        assert_eq!(x86(&code, 6, &[]), Some((4, vec![])));
        // The label jumps back to itself at run time.
        let code = with_label(&[0x89, 0xc2]);
        assert_eq!(rescue(Machine::X86_64, &code, |test| jump(test, 4, 4), 4, &[]), None);
        let named = |test: &mut TestImage| {
            jump(test, 4, 12);
            test.function("g", TEXT + 4, 5);
        };
        assert_eq!(rescue(Machine::X86_64, &code, named, 4, &[]), None, "another symbol begins there");
        let fixup = |test: &mut TestImage| {
            jump(test, 4, 12);
            let place = TEXT + 0x3000;
            let entry = [&relative(place, TEXT + 2)[..], &relative(place + 4, TEXT + 9), &[0; 4]].concat();
            test.table("__ex_table", "__start___ex_table", "__stop___ex_table", place, &entry);
        };
        assert_eq!(rescue(Machine::X86_64, &code, fixup, 4, &[]), None, "it may go on elsewhere");
        // mov %eax,%edx; jmp *%rax may lead anywhere.
        let code = [&[0x85, 0xf6, 0x89, 0xc2][..], &NOP5, &[0xff, 0xe0, 0xc3]].concat();
        assert_eq!(x86(&code, 4, &[]), None);
        // The function begins there: tracers patch it.
        let code = [&[0x89, 0xc2][..], &NOP5, &[0xc3]].concat();
        assert_eq!(x86(&code, 2, &[]), None);
        // endbr64 may be jumped to.
        let code = with_label(&[0x89, 0xc2, 0xf3, 0x0f, 0x1e, 0xfa]);
        assert_eq!(x86(&code, 8, &[]).map(|(at, _)| at), Some(4), "no further than to it");
    }

    #[test]
    fn nearer_places_come_first_and_refused_ones_are_passed() {
        // mov %eax,%edx; mov %ecx,%edx
        let code = with_label(&[0x89, 0xc2, 0x89, 0xca]);
        assert_eq!(x86(&code, 6, &[at(Location::Register(RAX))]), Some((4, vec![])));
    }

    #[test]
    fn static_calls_are_not_passed() {
        // 0: test %esi,%esi; 2: mov %eax,%edx; 4: call; 9: mov %rdi,%rax; 12: ret
        let code = [0x85, 0xf6, 0x89, 0xc2, 0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xf8, 0xc3];
        let call = |test: &mut TestImage| {
            let place = TEXT + 0x2000;
            let entry = [&relative(place, TEXT + 4)[..], &[0; 4]].concat();
            test.table(".static_call_sites", "__start_static_call_sites", "__stop_static_call_sites", place, &entry);
        };
        let found = rescue(Machine::X86_64, &code, call, 4, &[at(Location::Register(RDI))]).unwrap();
        assert_eq!((found.address, found.changed), (TEXT + 2, vec![]));
        // The call comes first: nothing is before it except another call.
        let code = [0x85, 0xf6, 0xe8, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3];
        let call = |test: &mut TestImage| {
            let place = TEXT + 0x2000;
            let entry = [&relative(place, TEXT + 7)[..], &[0; 4]].concat();
            test.table(".static_call_sites", "__start_static_call_sites", "__stop_static_call_sites", place, &entry);
        };
        assert_eq!(rescue(Machine::X86_64, &code, call, 7, &[at(Location::Register(RDI))]), None);
    }

    #[test]
    fn traps_are_not_passed() {
        // 0: test %esi,%esi; 2: mov %eax,%edx; 4: ud2; 6: mov %rdi,%rax; 9: ret
        let code = [0x85, 0xf6, 0x89, 0xc2, 0x0f, 0x0b, 0x48, 0x89, 0xf8, 0xc3];
        let warning = |test: &mut TestImage| {
            let place = TEXT + 0x2000;
            let entry = [&relative(place, TEXT + 4)[..], &1u32.to_le_bytes()].concat();
            test.table("__bug_table", "__start___bug_table", "__stop___bug_table", place, &entry);
        };
        let found = rescue(Machine::X86_64, &code, warning, 4, &[at(Location::Register(RDI))]).unwrap();
        assert_eq!((found.address, found.changed), (TEXT + 2, vec![]));
        assert_eq!(rescue(Machine::X86_64, &code[4..], |_| {}, 0, &[]), None, "nor with the handler's return");
    }

    #[test]
    fn checks_of_kcfi_are_passed_unless_they_compute_an_argument() {
        // 0: mov $1,%r10d; 6: add -4(%rax),%r10d; 10: je 14; 12: ud2; 14: call *%rax; 16: ret
        let code = [0x41, 0xba, 1, 0, 0, 0, 0x44, 0x03, 0x50, 0xfc, 0x74, 0x02, 0x0f, 0x0b, 0xff, 0xd0, 0xc3];
        let traps = |test: &mut TestImage| {
            let place = TEXT + 0x2000;
            test.table(
                ".kcfi_traps",
                "__start___kcfi_traps",
                "__stop___kcfi_traps",
                place,
                &relative(place, TEXT + 12),
            );
        };
        let found = rescue(Machine::X86_64, &code, traps, 0, &[at(Location::Register(RDI))]).unwrap();
        assert_eq!((found.address, found.changed), (TEXT + 10, vec![]));
        assert_eq!(rescue(Machine::X86_64, &code, traps, 0, &[at(Location::Register(10))]), None);
    }

    #[test]
    fn arm64() {
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let found = |words: &[u32], entry: u64, arguments: &[Argument]| {
            let code = code(words);
            let label = |test: &mut TestImage| jump(test, entry, code.len() as u64 - 4);
            let found = rescue(Machine::Aarch64, &code, label, entry, arguments)?;
            Some((found.address - TEXT, found.changed))
        };
        const NOP: u32 = 0xd503_201f;
        const RET: u32 = 0xd65f_03c0;
        const CMP: u32 = 0xeb01_001f; // cmp x0, x1
        const MOV: u32 = 0xaa13_03e0; // mov x0, x19
        let x = |register| at(Location::Register(register));
        assert_eq!(found(&[CMP, MOV, NOP, RET], 8, &[x(1)]), Some((4, vec![])));
        let changed = vec![(0, Ok(Location::Register(19)))];
        assert_eq!(found(&[CMP, MOV, NOP, RET], 8, &[x(0), x(19)]), Some((4, changed)));
        // mov w0, w19
        let lost = vec![(0, Err(Missing::Overwritten))];
        assert_eq!(found(&[CMP, 0x2a13_03e0, NOP, RET], 8, &[x(0)]), Some((4, lost.clone())));
        // add x0, x19, #8
        assert_eq!(found(&[CMP, 0x9100_2260, NOP, RET], 8, &[x(0)]), Some((4, lost)));
        // str x0, [x1]; bl; cbz x0; ldxr x0, [x1]; mov x0, xzr after a branch to the label
        for word in [0xf900_0020, 0x9400_0001, 0xb400_0020, 0xc85f_7c20] {
            assert_eq!(found(&[CMP, word, NOP, RET], 8, &[]), None, "{word:#x}");
        }
        // cbz x0, +8 past the mov
        assert_eq!(found(&[CMP, 0xb400_0040, MOV, NOP, RET], 12, &[]), None);
        assert_eq!(found(&[MOV, NOP, RET], 4, &[]), None, "the function begins there");
    }
}
