// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The sending end of the results channel: frames to a UART of their own, or to the kernel log (see the crate's page).

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::termios::{SetArg, cfmakeraw, tcdrain, tcgetattr, tcsetattr},
};
use serde::Serialize;

use crate::{
    frame::{Encoder, Kind},
    handover::Orders,
};

/// What the frames are written to.
enum Carrier {
    Uart(File),
    KernelLog(File),
}

/// An open channel.
pub(super) struct Channel {
    carrier: Carrier,
    encoder: Encoder,
}

impl Channel {
    /// Opens the port that the host attached, or else the kernel log.
    pub(super) fn open(orders: &Orders) -> io::Result<Channel> {
        let carrier = match open_uart(&orders.results_device) {
            Ok(file) => Carrier::Uart(file),
            Err(error) => {
                eprintln!("init: /dev/{}: {error}; results go by the kernel log", orders.results_device);
                Carrier::KernelLog(OpenOptions::new().write(true).open("/dev/kmsg")?)
            }
        };
        Ok(Channel { carrier, encoder: Encoder::new(&orders.marker) })
    }

    pub(super) fn is_uart(&self) -> bool {
        matches!(self.carrier, Carrier::Uart(_))
    }

    pub(super) fn send(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let lines = self.encoder.encode(kind, payload);
        match &mut self.carrier {
            Carrier::Uart(file) => file.write_all(lines.concat().as_bytes()),
            Carrier::KernelLog(file) => {
                // The second copies come after all the first ones: what damages a frame on its way may last for
                // several.
                for line in lines.iter().chain(&lines) {
                    // One write is one message. Level 1 passes every console level that lets anything through.
                    file.write_all(format!("<1>{line}").as_bytes())?;
                }
                Ok(())
            }
        }
    }

    pub(super) fn send_json(&mut self, kind: Kind, value: &impl Serialize) -> io::Result<()> {
        self.send(kind, &serde_json::to_vec(value)?)
    }

    /// Waits until everything has left the machine: the frames, and what programs wrote to the console.
    pub(super) fn finish(self) -> io::Result<()> {
        if let Carrier::Uart(file) = &self.carrier {
            tcdrain(file)?;
        }
        match tcdrain(io::stdout()) {
            // Init's output is not a terminal if the kernel has no console.
            Ok(()) | Err(Errno::ENOTTY) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens a serial port for bytes as they are. A `ttyS` node without hardware can be opened, but not set.
fn open_uart(device: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlag::O_NOCTTY | OFlag::O_CLOEXEC).bits())
        .open(format!("/dev/{device}"))?;
    let mut settings = tcgetattr(&file)?;
    cfmakeraw(&mut settings);
    tcsetattr(&file, SetArg::TCSANOW, &settings)?;
    Ok(file)
}
