// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The table: what provokes each refusal.

/// What provokes a refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Proof {
    /// A test that takes no kernel, by file and name, and words that it (or a snapshot of its) has.
    Unit {
        /// The file, from the workspace's root.
        file: &'static str,
        /// The function.
        test: &'static str,
        /// What it says.
        says: &'static str,
    },
    /// A case in the virtual machine.
    Case(&'static str),
    /// Nothing can, and why.
    Never(&'static str),
}

/// A variant.
#[derive(Debug)]
pub(crate) struct Line {
    /// Its name.
    pub variant: &'static str,
    /// What provokes it.
    pub proof: Proof,
}

/// An enumeration.
#[derive(Debug)]
pub(crate) struct Enumeration {
    /// Its name.
    pub name: &'static str,
    /// Where it is.
    pub file: &'static str,
    /// Its variants.
    pub lines: &'static [Line],
}

const fn unit(variant: &'static str, file: &'static str, test: &'static str, says: &'static str) -> Line {
    Line { variant, proof: Proof::Unit { file, test, says } }
}

const fn case(variant: &'static str, case: &'static str) -> Line {
    Line { variant, proof: Proof::Case(case) }
}

const fn never(variant: &'static str, why: &'static str) -> Line {
    Line { variant, proof: Proof::Never(why) }
}

const PLAN: &str = "loader/src/plan/tests/mod.rs";
const FENTRY: &str = "loader/src/plan/tests/fentry.rs";
const LIBBPF: &str = "loader/src/plan/tests/libbpf.rs";
const ANALYSIS: &str = "loader/src/program/tests.rs";
const LISTINGS: &str = "loader/src/trampoline/tests/listings.rs";
const EXITS: &str = "loader/src/trampoline/tests/exits.rs";
const ROBUSTNESS: &str = "loader/src/trampoline/tests/robustness.rs";
const PROBEABLE: &str = "encoder/src/text/probeable.rs";
const SELECT: &str = "loader/src/target/function/select/tests.rs";
const DECLARED: &str = "loader/src/program/declared/tests.rs";
const BPF_TARGET: &str = "loader/src/explain/bpf_programs.rs";
const LIVEPATCH: &str = "loader/src/plan/tests/livepatch.rs";
const SUBSET: &str = "loader/src/source/subset.rs";
const HERE: &str = "tests/tests/refusals/provoked.rs";
const DOUBT: &str = "loader/src/plan/tests/doubt.rs";
const MODULES: &str = "loader/src/plan/tests/modules.rs";
const COMPILE: &str = "cli/tests/compile.rs";
const ACCESS: &str = "sites/src/access.rs";
const WRONG: &str = "what_is_wrong_is_said";
const NO_MODULE: &str = "modules::not_loaded_and_without_site_data";
const BAD_PROGRAMS: &str = "refusals::programs_that_cannot_be_attached";

/// Every enumeration that says why something is refused.
pub(crate) const TABLE: &[Enumeration] = &[
    Enumeration {
        name: "Reason",
        file: "loader/src/site/reason.rs",
        lines: &[
            unit("Unprobeable", PLAN, "every_sort_of_site", "it no longer runs"),
            unit("Blacklisted", PLAN, "every_sort_of_site", "on the running kernel's kprobe blacklist"),
            unit("Notrace", PLAN, "every_sort_of_site", "in a notrace function"),
            unit(
                "EndsModule",
                FENTRY,
                "the_end_of_a_modules_text_is_left_alone_where_kernels_look_past_it",
                "ends_module",
            ),
            unit(
                "Risky",
                "loader/src/plan/tests/risks.rs",
                "risky_sites_are_refused_unless_they_are_allowed",
                "a program there is a risk",
            ),
            unit("MissingArguments", PLAN, "every_sort_of_site", "cap: optimised out"),
            unit("EntryUncertain", PLAN, "every_sort_of_site", "does not say where this copy is entered"),
            unit("MayRepeat", PLAN, "complete_lists_what_is_in_the_way", "hits may outnumber calls"),
            unit("NoLocationData", PLAN, "every_sort_of_site", "where its arguments are is not known"),
            unit("NoPrototype", HERE, "a_body_without_a_prototype", "no_prototype"),
            unit("PrototypeUnknown", SELECT, "what_cannot_be_shown_to_match_is_in_the_way", "Reason::PrototypeUnknown"),
            unit("FileUnknown", SELECT, "where_the_file_is_not_known_it_is_in_the_way", "Reason::FileUnknown"),
            unit("MayMiss", PLAN, "complete_lists_what_is_in_the_way", "some calls may not be seen"),
            unit("TailCalled", BPF_TARGET, "tail_calls_are_in_the_way_of_complete", "slot 7 of map jumps"),
            unit("Unpaired", LIBBPF, "both_ends_are_at_the_same_calls", "unpaired"),
            unit("Extended", BPF_TARGET, "an_extension_keeps_everything_else_away", "instead"),
            never(
                "OnlyTracing",
                "no test of its own yet: a function of a BPF program on a kernel without BPF trampolines",
            ),
            unit("Redirected", LIVEPATCH, "calls_are_seen_at_the_entry_and_not_behind_it", "fix redirects its calls"),
            unit("LivePatched", LIVEPATCH, "an_old_body_is_not_in_the_way", "that the live patch fix has replaced"),
            unit("SymbolMismatch", PLAN, "every_sort_of_site", "the kernel has another symbol there"),
            unit("CodeDiffers", "tests/src/guest/code.rs", "moved_sites", "code_differs"),
            unit("OutsideSymbol", PLAN, "sites_lie_in_the_symbols_that_hold_them", "Reason::OutsideSymbol"),
            unit("InModule", HERE, "a_body_in_a_module", "in_module"),
            unit("NoMechanism", PLAN, "mechanisms_follow_the_kernel", "no_mechanism"),
            unit("ExitOfInline", FENTRY, "inlined_copies_are_in_the_way_of_a_complete_exit", "ExitOfInline"),
            unit("NoExit", FENTRY, "returns", "no_exit"),
            unit("ReturnRemoved", FENTRY, "a_return_value_that_may_be_gone_is_not_read", "return_removed"),
            unit("Sleepable", FENTRY, "sleepable_programs_keep_to_fentry", "sleepable"),
            case("Refused", BAD_PROGRAMS),
            unit("Kernel", FENTRY, "sleepable_programs_keep_to_fentry", "Reason::Kernel"),
        ],
    },
    Enumeration {
        name: "Unavailable",
        file: "loader/src/site/unavailable.rs",
        lines: &[
            unit("Missing", PLAN, "every_sort_of_site", "cap: optimised out"),
            unit("Doubtful", DOUBT, "a_doubtful_argument_counts_as_missing", "Unavailable::Doubtful"),
        ],
    },
    Enumeration {
        name: "Unprobeable",
        file: "sites/src/site.rs",
        lines: &[
            unit("Init", PROBEABLE, "special_text_is_refused", "Unprobeable::Init"),
            unit(
                "Exit",
                "tests/tests/refusals/provoked.rs",
                "real_data_name_text_that_is_dropped",
                "Unprobeable::Exit",
            ),
            unit("Noinstr", PROBEABLE, "special_text_is_refused", "Unprobeable::Noinstr"),
            unit("Entry", PROBEABLE, "special_text_is_refused", "Unprobeable::Entry"),
            unit("Blacklisted", PROBEABLE, "special_text_is_refused", "Unprobeable::Blacklisted"),
            unit("Notrace", PROBEABLE, "notrace_functions_are_refused_and_suffixed_ones_ask_for_their_base", "Notrace"),
            unit("JumpLabel", PROBEABLE, "patch_sites_are_refused", "JumpLabel"),
            unit("StaticCall", PROBEABLE, "patch_sites_are_refused", "StaticCall"),
            unit("Bug", PROBEABLE, "patch_sites_are_refused", "Bug"),
            unit("NotAnInstruction", PROBEABLE, "ordinary_text_is_taken", "NotAnInstruction"),
            unit("CfiPreamble", PROBEABLE, "preambles_are_refused", "CfiPreamble"),
            unit("NotText", PROBEABLE, "ordinary_text_is_taken", "NotText"),
            unit("Unplaced", "loader/src/source/own.rs", "the_images_own", "Unprobeable::Unplaced"),
            unit("Unsteppable", PROBEABLE, "instructions_that_x86_cannot_emulate", "Unsteppable"),
        ],
    },
    Enumeration {
        name: "Refusal",
        file: "loader/src/site/refusal.rs",
        lines: &[
            unit("HelperNotAllowed", ANALYSIS, "refusals", "HelperNotAllowed"),
            unit("TailCall", EXITS, "helpers_are_refused_where_they_cannot_work", "TailCall"),
            unit("ContextModified", ANALYSIS, "refusals", "ContextModified"),
            unit("ReadsBeforeContext", ANALYSIS, "refusals", "ReadsBeforeContext"),
            unit("DisplacedContext", ANALYSIS, "refusals", "DisplacedContext"),
            unit("ReadsSlotBeyond", LISTINGS, "refusals", "ReadsSlotBeyond"),
            unit("ArgumentMissing", LISTINGS, "refusals", "ArgumentMissing"),
            unit("ArgumentDisplaced", LISTINGS, "refusals", "ArgumentDisplaced"),
            unit(
                "NotBySymbol",
                "loader/src/compile/place.rs",
                "places_by_symbols_that_are_unique",
                "Refusal::NotBySymbol",
            ),
            unit("ArgumentGone", EXITS, "refusals", "ArgumentGone"),
            unit("ReturnsNothing", EXITS, "refusals", "ReturnsNothing"),
            unit("ReturnMissing", EXITS, "refusals", "ReturnMissing"),
            unit("MalformedReturn", EXITS, "refusals", "MalformedReturn"),
            unit("WrongEnd", EXITS, "refusals", "WrongEnd"),
            unit("NoSession", EXITS, "refusals", "NoSession"),
            unit("MalformedLocation", LISTINGS, "refusals", "MalformedLocation"),
            unit("NoRdonlyCast", LISTINGS, "without_rdonly_cast_only_following_a_pointer_is_refused", "NoRdonlyCast"),
            unit("NoRdonlyCastOfReturn", EXITS, "refusals", "NoRdonlyCastOfReturn"),
            unit(
                "ForeignType",
                MODULES,
                "a_modules_own_types_are_followed_by_fentry_alone",
                "its type is a module's own",
            ),
            never("ForeignTypeOfReturn", "no test of its own yet: the same as ForeignType, of what a function returns"),
            unit("StackOverflow", LISTINGS, "refusals", "StackOverflow"),
            unit("JumpTooFar", ROBUSTNESS, "a_jump_that_no_longer_fits_is_refused", "JumpTooFar"),
            unit("TooComplex", ANALYSIS, "deep_and_endless_call_chains_are_refused_or_bounded", "TooComplex"),
            unit("Malformed", ANALYSIS, "refusals", "Refusal::Malformed"),
            unit("MalformedBtf", HERE, "the_objects_btf_is_damaged", "Refusal::MalformedBtf"),
        ],
    },
    Enumeration {
        name: "PlanError",
        file: "loader/src/plan/mod.rs",
        lines: &[
            case("Program", BAD_PROGRAMS),
            unit("Prototype", PLAN, "a_slot_that_the_function_does_not_have", "PlanError::Prototype"),
            unit("Ambiguous", PLAN, "namesakes_that_differ_are_refused", "there are several functions foo"),
            unit("Nothing", PLAN, "nothing_to_attach", "none of its 1 sites can be attached"),
            unit("Incomplete", PLAN, "complete_lists_what_is_in_the_way", "the policy is complete"),
        ],
    },
    Enumeration {
        name: "TargetError",
        file: "loader/src/target/error.rs",
        lines: &[
            case("Unknown", "refusals::unknown_function"),
            case("UnknownInModule", NO_MODULE),
            case("NotLoaded", NO_MODULE),
            case("NoModuleData", NO_MODULE),
            unit("NoBase", HERE, "symbols_without_the_images_place", "TargetError::NoBase"),
            unit("Displacement", HERE, "symbols_that_disagree_about_the_images_place", "TargetError::Displacement"),
            never(
                "Damaged",
                "checksums tell damage before: it takes data that contradict themselves under right ones, an encoder's fault",
            ),
        ],
    },
    Enumeration {
        name: "DeclaredError",
        file: "loader/src/program/declared/mod.rs",
        lines: &[
            unit("Btf", DECLARED, "what_a_program_states_is_found_by_its_name", "DeclaredError::Btf"),
            unit("NotAPolicy", DECLARED, "the_policy_that_a_program_states", "DeclaredError::NotAPolicy"),
            unit("NotAPrototype", DECLARED, "what_a_program_states_is_found_by_its_name", "NotAPrototype"),
        ],
    },
    Enumeration {
        name: "SelectError",
        file: "loader/src/target/function/select/mod.rs",
        lines: &[
            unit("Prototype", SELECT, "a_statement_that_fits_none_is_refused_with_the_list", "is of another type"),
            unit("File", SELECT, "a_file_chooses_by_the_end_of_its_path", "declared in drivers/a/core.c"),
            unit("SeveralFiles", SELECT, "a_file_chooses_by_the_end_of_its_path", "SelectError::SeveralFiles"),
        ],
    },
    Enumeration {
        name: "BpfTargetError",
        file: "loader/src/target/bpf_program/mod.rs",
        lines: &[
            case("Info", "bpf_target::what_is_not_there"),
            never("NoBtf", "no test of its own yet: a program that was loaded without BTF"),
            never("Btf", "the kernel checked the program's BTF when it was loaded"),
            unit("NotJited", BPF_TARGET, "a_function_that_is_not_there", "BpfTargetError::NotJited"),
            unit("NoFunction", BPF_TARGET, "a_function_that_is_not_there", "has no function bus"),
            case("Module", "bpf_target::what_is_not_there"),
            never("Maps", "walking the maps takes the capability that the program's information took before"),
        ],
    },
    Enumeration {
        name: "CompileError",
        file: "loader/src/compile/error.rs",
        lines: &[
            unit("NoBtf", COMPILE, "without_information", "the object has no .BTF and .BTF.ext"),
            unit("Btf", COMPILE, "without_information", "the object's BTF: "),
            unit("Ext", COMPILE, "without_information", "the object's .BTF.ext: "),
            unit("Damaged", COMPILE, "without_information", "section .text of the object is damaged"),
            unit(
                "Relocation",
                COMPILE,
                "a_relocation_without_a_symbol",
                "has a relocation that is not by a symbol alone",
            ),
            never("Lost", "a plan for a kernel that does not run has no such site: NotBySymbol comes first"),
            unit("NoFuncInfo", COMPILE, "without_information", ".BTF.ext does not have the function program"),
            unit("Program", COMPILE, "without_information", "program override_return: "),
            unit("NoFunction", COMPILE, "what_cannot_be_compiled", "names no function"),
            unit("Module", COMPILE, "what_cannot_be_compiled", "ext4 is a module"),
            unit("AsksForSite", COMPILE, "what_cannot_be_compiled", "calls siteseer_site()"),
            unit("Licence", COMPILE, "what_cannot_be_compiled", "the object's licence is"),
            unit("Referred", COMPILE, "what_cannot_be_compiled", "which is replaced by others"),
            unit("Plan", COMPILE, "what_cannot_be_compiled", "the policy is complete"),
            never("Write", "what is written was read, or is made here: the writer refuses none of it"),
        ],
    },
    Enumeration {
        name: "ObjectFileError",
        file: "loader/src/program/object_file.rs",
        lines: &[
            unit("Elf", "loader/src/program/object_file.rs", "what_is_no_object", "ObjectFileError::Elf"),
            unit("NotBpf", "loader/src/program/object_file.rs", "what_is_no_object", "ObjectFileError::NotBpf"),
            unit(
                "NoPrograms",
                "loader/src/program/object_file.rs",
                "sections_of_others_and_bad_names",
                "ObjectFileError::NoPrograms",
            ),
            unit(
                "Section",
                "loader/src/program/object_file.rs",
                "sections_of_others_and_bad_names",
                "ObjectFileError::Section",
            ),
            never("Code", "no test of its own yet: an object whose code refers to what it has not"),
            unit(
                "TooLarge",
                "loader/src/program/object_file.rs",
                "programs_that_share_code_and_types",
                "ObjectFileError::TooLarge",
            ),
        ],
    },
    Enumeration {
        name: "PathError",
        file: "sites/src/access.rs",
        lines: &[
            unit("Syntax", ACCESS, WRONG, "a ] is missing"),
            unit("NoMember", ACCESS, WRONG, "struct outer has no member prot"),
            unit("NotAPointer", ACCESS, WRONG, "not a pointer: write p->qstr.len"),
            unit("APointer", ACCESS, WRONG, "p is a pointer (struct outer *): write p->port"),
            unit("NoParts", ACCESS, WRONG, "which has no members"),
            unit("Incomplete", ACCESS, WRONG, "does not say what is in struct nowhere"),
            unit("Ambiguous", ACCESS, WRONG, "this kernel's BTF has several"),
            unit("PerCpu", ACCESS, WRONG, "points to per-CPU data"),
            unit("PastTheEnd", ACCESS, WRONG, "4 is past the end"),
            unit("Whole", ACCESS, WRONG, "give the index of an element"),
            unit("Layout", ACCESS, WRONG, "BTF is damaged"),
        ],
    },
    Enumeration {
        name: "PatternError",
        file: "loader/src/program/pattern.rs",
        lines: &[
            unit("Empty", "loader/src/program/pattern.rs", "no_patterns", "PatternError::Empty"),
            unit("Class", "loader/src/program/pattern.rs", "no_patterns", "PatternError::Class"),
            unit("Character", "loader/src/program/pattern.rs", "no_patterns", "PatternError::Character"),
        ],
    },
    Enumeration {
        name: "SectionError",
        file: "loader/src/program/section.rs",
        lines: &[
            unit("Foreign", "loader/src/program/section.rs", "section_names", "SectionError::Foreign"),
            unit("Malformed", "loader/src/program/section.rs", "section_names", "SectionError::Malformed"),
        ],
    },
    Enumeration {
        name: "ObjectError",
        file: "loader/src/program/object.rs",
        lines: &[
            unit("NotLoaded", HERE, "a_program_that_is_not_loaded", "ObjectError::NotLoaded"),
            case("NotGuarded", "denied::program_that_siteseer_did_not_load"),
            case("Section", "denied::section_that_names_no_function"),
            never("Info", "what the kernel says of a program is asked by the descriptor that libbpf has for it"),
        ],
    },
    Enumeration {
        name: "RegisterError",
        file: "loader/src/register/error.rs",
        lines: &[
            never("Handler", "libbpf refuses a handler only if there is no memory"),
            unit("TwoLibbpfs", "loader/src/register/copies.rs", "another_copy_is_refused_and_named", "TwoLibbpfs"),
            case("Unknown", "libbpf::what_cannot_be_attached_is_an_error"),
            case("Link", "libbpf::nothing_stays_when_a_system_call_fails"),
            case("NoFunc", "libbpf::whether_a_function_can_be_traced"),
            never(
                "Libbpf",
                "what the kernel refuses to libbpf's program at its own function, it refused when that was planned",
            ),
        ],
    },
    Enumeration {
        name: "AttachError",
        file: "loader/src/attach/error.rs",
        lines: &[
            case("Privileges", "refusals::missing_privileges"),
            case("NoFunction", "denied::no_function_was_given"),
            case("Twice", "libbpf::every_way_sees_what_libbpf_sees"),
            never("NoSuchType", "libbpf looks a target up among FUNCs only, and the kernel's own BTF does not go away"),
            unit(
                "TooManySites",
                "loader/src/attach/options.rs",
                "more_sites_than_a_thousand_are_asked_for",
                "TooManySites",
            ),
            never("LockedDown", "no kernel of the matrix is locked down; the mode is read in a unit test"),
            case("SwitchedOff", "refusals::kprobes_that_are_switched_off"),
            case("Files", "denied::too_few_files"),
            case("Licence", "denied::licence_that_is_not_gpl_compatible"),
            never("ModulesChange", "a module would have to come and go within each of five attempts"),
            never("Unanswered", "the kernel tells root about all modules, programs and maps"),
            never("Btf", "the kernel has taken the same BTF with the object; ours differs in linkage and ids alone"),
            case("Verifier", BAD_PROGRAMS),
            never("Map", "a map of one entry is refused only if there is no memory; files are counted beforehand"),
            never("Arm", "what is not the site's own is memory and files; files are counted beforehand"),
        ],
    },
    Enumeration {
        name: "SourceError",
        file: "loader/src/source/mod.rs",
        lines: &[
            unit("NotFound", "loader/src/source/mod.rs", "a_search_in_vain_lists_every_place", "not there"),
            unit("Read", "loader/src/source/mod.rs", "files_that_are_not_site_data", "SourceError::Read"),
            unit("Foreign", "loader/src/source/mod.rs", "files_that_are_not_site_data", "SourceError::Foreign"),
            unit("OtherTypes", HERE, "site_data_with_other_types", "SourceError::OtherTypes"),
            unit("NotInKernel", "loader/src/source/own.rs", "the_images_own", "SourceError::NotInKernel"),
            unit("NoSites", HERE, "a_program_is_not_site_data", "SourceError::NoSites"),
            unit("Malformed", HERE, "site_data_that_are_damaged_inside", "SourceError::Malformed"),
            never("KernelBtf", "the kernel makes /sys/kernel/btf/vmlinux itself, and never runs with a damaged one"),
            unit("Encode", HERE, "debug_information_that_cannot_be_encoded", "SourceError::Encode"),
            case("ModuleNotFound", NO_MODULE),
            never("NoModuleBuildId", "kernels with BTF link their modules with a build id"),
            unit(
                "NotModule",
                "loader/src/source/module.rs",
                "an_images_file_is_not_a_modules",
                "SourceError::NotModule",
            ),
            unit("Subset", SUBSET, "what_a_subset_cannot_be_used_for", "SourceError::Subset"),
            unit("NotInSubset", SUBSET, "a_kernel_and_a_module_of_a_subset", "SourceError::NotInSubset"),
            unit("NotAsked", SUBSET, "a_kernel_and_a_module_of_a_subset", "SourceError::NotAsked"),
            never("OtherKernel", "no test of its own yet: a module's site file over the types of another kernel"),
        ],
    },
    Enumeration {
        name: "SymbolsError",
        file: "loader/src/kernel/symbols/mod.rs",
        lines: &[
            case("Read", "denied::kernel_that_shows_nothing"),
            case("Restricted", "refusals::hidden_symbols"),
            case("NoSymbols", "denied::kernel_that_shows_nothing"),
            never("Restless", "a module would have to come and go within each of five attempts"),
        ],
    },
    Enumeration {
        name: "KernelError",
        file: "loader/src/kernel/mod.rs",
        lines: &[
            case("Machine", "denied::kernel_that_shows_nothing"),
            never("Uname", "uname() fails only for a pointer that is not valid (kernel/sys.c)"),
            case("Read", "denied::kernel_that_shows_nothing"),
            case("NoBuildId", "denied::kernel_that_shows_nothing"),
        ],
    },
];
