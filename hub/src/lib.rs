// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Site data from elsewhere: folders of signed site files that any web server can serve (*hubs*), and fetching from
//! them.
//!
//! The site data of a kernel is 30 MB, and what it is made of is a debug image of hundreds. So it is made once, and
//! fetched by all who run the kernel. A hub is a folder of static files, by build id ([`layout`]); [`make`] makes and
//! keeps it, and [`fetch`] fetches from it.
//!
//! What is fetched decides where probes stand in a kernel. It is believed for one of two reasons: its signature is by a
//! key that the user named, or the user said that unsigned data will do. The signature is checked before anything is
//! decompressed or parsed. Then the build id and the types are compared with the kernel's, as the loader does again
//! each time. Nothing is written under the name that the loader looks for until all of this is done, and then by
//! renaming.
//!
//! The loader itself never goes to the network; this crate is the only part of siteseer that does.

pub mod archive;
pub mod config;
pub mod crawl;
mod debian;
mod error;
pub mod fetch;
mod http;
pub mod jobs;
pub mod layout;
mod local;
pub mod make;
pub mod pack;
pub mod place;
#[cfg(feature = "serve")]
mod serve;
pub mod sign;
mod stored;

pub use error::{Cause, HubError};
#[cfg(feature = "serve")]
pub use serve::serve;
