// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Serving a hub, for tests and small fleets. Any web server does as well.

use crate::error::HubError;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use tower_http::services::ServeDir;

/// Serves a folder until the process is interrupted. `ready` is told the address; the port asked for may have been 0.
///
/// # Errors
/// [`HubError::Serve`].
pub fn serve(folder: &Path, address: &str, ready: impl FnOnce(SocketAddr)) -> Result<(), HubError> {
    let failed = |error: io::Error| HubError::Serve { address: address.to_owned(), error };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
        ready(listener.local_addr().map_err(failed)?);
        let router = axum::Router::new().fallback_service(ServeDir::new(folder));
        let interrupted = async {
            let _ = tokio::signal::ctrl_c().await;
        };
        axum::serve(listener, router).with_graceful_shutdown(interrupted).await.map_err(failed)
    })
}
