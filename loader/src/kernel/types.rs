// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the kernel's types tell about what it can do. There are hundreds of thousands; one walk finds all that is asked
//! for.

use super::Session;
use crate::trampoline::Kfunc;
use siteseer_sites::btf::{Btf, Kind, Type, TypeId};

/// What is looked for.
const WANTED: [(Kind, &str); 15] = [
    (Kind::Enum, "bpf_attach_type"),
    (Kind::Struct, "module"),
    (Kind::Struct, "fprobe_hlist_node"),
    (Kind::Func, "arch_prepare_optimized_kprobe"),
    (Kind::Func, "bpf_jit_supports_private_stack"),
    (Kind::Func, "bpf_rdonly_cast"),
    (Kind::Func, "bpf_session_cookie"),
    (Kind::Func, "bpf_session_is_return"),
    (Kind::Func, "bpf_trampoline_link_prog"),
    (Kind::Func, "bpf_trampoline_multi_attach"),
    (Kind::Func, "execmem_restore_rox"),
    (Kind::Func, "perf_kprobe_init"),
    (Kind::Func, "register_fprobe_ips"),
    (Kind::Func, "register_ftrace_direct"),
    (Kind::Func, "register_kretprobe"),
];

/// The kernel's types, as far as they matter here. Without BTF there are none.
pub(super) struct KernelTypes<'a> {
    btf: Option<Btf<'a>>,
    found: Vec<Option<Type<'a>>>,
}

impl<'a> KernelTypes<'a> {
    pub(super) fn new(btf: Option<Btf<'a>>) -> KernelTypes<'a> {
        let found = btf.as_ref().map(|btf| btf.find_each(&WANTED)).unwrap_or_default();
        KernelTypes { btf, found }
    }

    /// One of what was looked for.
    fn get(&self, kind: Kind, name: &str) -> Option<Type<'a>> {
        let nth = WANTED.iter().position(|wanted| *wanted == (kind, name));
        debug_assert!(nth.is_some(), "{name} is not looked for");
        *self.found.get(nth?)?
    }

    /// A function's FUNC.
    pub(super) fn function(&self, name: &str) -> Option<TypeId> {
        self.get(Kind::Func, name).map(|func| func.id())
    }

    /// Whether the kernel has a function.
    pub(super) fn has(&self, function: &str) -> bool {
        self.function(function).is_some()
    }

    /// Whether fentry and fexit programs can be attached: CONFIG_BPF_JIT and CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS.
    pub(super) fn fentry(&self) -> bool {
        self.has_attach_type("BPF_TRACE_FENTRY")
            && self.has("register_ftrace_direct")
            && self.has("bpf_trampoline_link_prog")
    }

    /// Whether one of them can be attached to many functions: CONFIG_HAVE_SINGLE_FTRACE_DIRECT_OPS.
    pub(super) fn tracing_multi(&self) -> bool {
        self.has("bpf_trampoline_multi_attach") && self.has_attach_type("BPF_TRACE_FENTRY_MULTI")
    }

    /// Whether kprobe.multi links can be made: CONFIG_FPROBE.
    pub(super) fn kprobe_multi(&self) -> bool {
        self.has_attach_type("BPF_TRACE_KPROBE_MULTI") && self.has("register_fprobe_ips")
    }

    /// Whether the kernel knows a way to attach.
    pub(super) fn has_attach_type(&self, name: &str) -> bool {
        let all = self.get(Kind::Enum, "bpf_attach_type");
        all.is_some_and(|ty| ty.enumerators().any(|enumerator| enumerator.name == name))
    }

    /// See [`Kernel::decodes_past_modules`](super::Kernel::decodes_past_modules): what tells is which functions and
    /// members the kernel has. For a kernel without types, the worse is assumed.
    pub(super) fn decodes_past_modules(&self) -> bool {
        if self.btf.is_none() {
            return true;
        }
        let one_area = self
            .get(Kind::Struct, "module")
            .is_some_and(|module| module.members().any(|member| member.name == "core_layout"));
        self.function("arch_prepare_optimized_kprobe").is_some()
            && self.function("execmem_restore_rox").is_none()
            && !one_area
    }

    /// The kfuncs of kprobe sessions. They took no argument before Linux 7.0.
    ///
    /// Up to 6.13 the return of a call is handled even if its entry was missed, and what was kept could be another
    /// call's. The release that mended it (`kprobe_multi_link_prog_run()` in kernel/trace/bpf_trace.c) also put fprobe
    /// on the function graph tracer, which shows in the kernel's types.
    pub(super) fn session(&self) -> Option<Session> {
        self.get(Kind::Struct, "fprobe_hlist_node")?;
        let kfunc = |name: &str| {
            let func = self.get(Kind::Func, name)?;
            let prototype = self.btf.as_ref()?.ty(func.target()?)?;
            Some(Kfunc { id: func.id(), takes_context: prototype.params().len() > 0 })
        };
        Some(Session { is_return: kfunc("bpf_session_is_return")?, cookie: kfunc("bpf_session_cookie")? })
    }
}
