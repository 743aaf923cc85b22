// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the kernel is told of a program's functions and source lines.

/// `struct bpf_func_info`: a subprogram's start and its BTF FUNC.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FuncInfo {
    /// Index of its first instruction.
    pub insn_off: u32,
    /// BTF type id.
    pub type_id: u32,
}

/// `struct bpf_line_info`: the source line that starts at an instruction.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineInfo {
    /// Index of the instruction.
    pub insn_off: u32,
    /// Offset of the file's name in BTF's strings.
    pub file_name_off: u32,
    /// Offset of the line's text in BTF's strings.
    pub line_off: u32,
    /// Line number in the high 22 bits, column in the low 10.
    pub line_col: u32,
}
