// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Bytes of debug information.

/// Bytes of a debug section.
pub(crate) type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;
