// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! One boot while it lasts: collects what comes out, knows the deadline, and judges at the end.

use std::{
    collections::BTreeMap,
    io::Write,
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;

use crate::{
    accel::Accelerator,
    console::Console,
    error::VmError,
    frame::{Decoder, Frame, Kind},
    handover::{Farewell, Hello},
    outcome::{Carrier, ExitStatus, Outcome},
    qemu::{End, Watcher},
    splat::{self, Splat},
};

/// How long a guest may take to switch itself off once its program has ended.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(10);

/// Is called with results as they arrive.
pub(super) type TakeResults<'a> = dyn FnMut(&[u8]) + Send + 'a;

pub(super) struct Run<'a> {
    started: Instant,
    accelerator: Accelerator,
    time_limit: Duration,
    proof: Option<Duration>,
    console: Console<'a>,
    /// One for each way a frame can come.
    port: Decoder,
    log: Decoder,
    frames: Frames<'a>,
}

/// What the frames told.
#[derive(Default)]
struct Frames<'a> {
    next: u32,
    /// Those that wait for an earlier one: its second copy may be still to come.
    early: BTreeMap<u32, Frame>,
    missing: u64,
    hello: Option<Hello>,
    farewell: Option<Farewell>,
    ended: Option<Instant>,
    failure: Option<String>,
    results: Vec<u8>,
    on_results: Option<&'a mut TakeResults<'a>>,
}

impl Frames<'_> {
    fn take(&mut self, frame: Frame) {
        // A second copy of what arrived.
        if frame.sequence < self.next {
            return;
        }
        // The guest is about to switch itself off, whatever is missing.
        if matches!(frame.kind, Kind::Farewell | Kind::Failure) {
            self.ended.get_or_insert_with(Instant::now);
        }
        self.early.insert(frame.sequence, frame);
        while let Some(frame) = self.early.remove(&self.next) {
            self.next = frame.sequence.saturating_add(1);
            self.read(frame);
        }
    }

    /// No more frames come: those that still wait are read, and the gaps before them counted.
    fn end(&mut self) {
        for (sequence, frame) in std::mem::take(&mut self.early) {
            self.missing += u64::from(sequence - self.next);
            self.next = sequence.saturating_add(1);
            self.read(frame);
        }
    }

    fn read(&mut self, frame: Frame) {
        match frame.kind {
            Kind::Hello => self.hello = self.parse(&frame.payload),
            Kind::Data => {
                self.results.extend_from_slice(&frame.payload);
                if let Some(take) = &mut self.on_results {
                    take(&frame.payload);
                }
            }
            Kind::Farewell => {
                self.farewell = self.parse(&frame.payload);
            }
            Kind::Failure => {
                let text = String::from_utf8_lossy(&frame.payload);
                self.failure.get_or_insert_default().push_str(&text);
            }
        }
    }

    /// A frame that is whole and does not parse comes from an init of another version.
    fn parse<T: DeserializeOwned>(&mut self, payload: &[u8]) -> Option<T> {
        serde_json::from_slice(payload)
            .map_err(|error| {
                self.failure = Some(format!("init speaks another version of the protocol ({error}): build it again"));
            })
            .ok()
    }
}

impl Watcher for Run<'_> {
    fn console(&mut self, bytes: &[u8]) {
        self.console.push(bytes);
        for frame in self.log.push(bytes) {
            self.frames.take(frame);
        }
        self.show();
    }

    fn results(&mut self, bytes: &[u8]) {
        for frame in self.port.push(bytes) {
            self.frames.take(frame);
        }
        self.show();
    }

    fn deadline(&self) -> Instant {
        let limit = self.started + self.time_limit;
        match (self.frames.ended, self.proof) {
            (Some(ended), _) => limit.min(ended + POWER_OFF_LIMIT),
            (None, Some(proof)) if self.frames.hello.is_none() => limit.min(self.started + proof),
            _ => limit,
        }
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(
        marker: &str,
        accelerator: Accelerator,
        time_limit: Duration,
        proof: Option<Duration>,
        console: Option<&'a mut (dyn Write + Send)>,
        on_results: Option<&'a mut TakeResults<'a>>,
    ) -> Run<'a> {
        Run {
            started: Instant::now(),
            accelerator,
            time_limit,
            proof,
            console: Console::new(marker, console, proof.is_some()),
            port: Decoder::new(marker),
            log: Decoder::new(marker),
            frames: Frames { on_results, ..Frames::default() },
        }
    }

    /// From init's sign of life on, the console is worth showing.
    fn show(&mut self) {
        if self.frames.hello.is_some() {
            self.console.release();
        }
    }

    /// Says what came of it.
    pub(super) fn judge(mut self, end: End, qemu: String) -> Result<Outcome, VmError> {
        let wall = self.started.elapsed();
        let damaged = self.port.damaged() + self.log.damaged();
        self.frames.end();
        let Frames { missing, hello, farewell, failure, results, .. } = self.frames;
        let console = self.console.into_text();
        let mut splats = splat::find(&console);
        if splats.is_empty()
            && let Some(text) = farewell.as_ref().and_then(|farewell| splat::taint_text(farewell.taint))
        {
            splats.push(Splat { pattern: "taint", text });
        }
        let outcome = Box::new(Outcome {
            exit_status: farewell.as_ref().and_then(exit_status),
            console,
            results,
            splats,
            release: hello.as_ref().map(|hello| hello.release.clone()).unwrap_or_default(),
            boot_seconds: hello.as_ref().map(|hello| hello.uptime),
            guest_seconds: farewell.as_ref().map(|farewell| farewell.uptime),
            wall,
            accelerator: self.accelerator,
            carrier: hello.as_ref().map(|hello| if hello.uart { Carrier::Uart } else { Carrier::KernelLog }),
        });

        if let Some(reason) = failure {
            return Err(VmError::Init { reason, outcome });
        }
        let how = match &end {
            End::Exited(status) => format!("QEMU ended with {status}"),
            End::Deadline => format!("killed after {:.1} s", wall.as_secs_f64()),
        };
        if hello.is_none() && farewell.is_none() {
            return Err(VmError::NeverReachedInit { how, qemu, outcome });
        }
        if farewell.is_none() {
            return Err(match end {
                End::Deadline => VmError::TimeLimit { limit: self.time_limit, outcome },
                End::Exited(_) => VmError::WentDown { how, qemu, outcome },
            });
        }
        if missing > 0 {
            return Err(VmError::ResultsLost { missing, damaged, outcome });
        }
        if !outcome.splats.is_empty() {
            return Err(VmError::Splat { outcome });
        }
        match outcome.exit_status {
            Some(ExitStatus::Code(_)) => Ok(*outcome),
            _ => Err(VmError::Crashed { outcome }),
        }
    }
}

fn exit_status(farewell: &Farewell) -> Option<ExitStatus> {
    match (farewell.code, farewell.signal) {
        (Some(code), _) => Some(ExitStatus::Code(code)),
        (None, Some(signal)) => Some(ExitStatus::Signal(signal)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::frame::Encoder;

    const MARKER: &str = "0123456789abcdef";

    fn hello(uart: bool) -> Vec<u8> {
        serde_json::to_vec(&Hello { release: "7.3.4".to_owned(), uptime: 1.5, uart }).unwrap()
    }

    fn farewell(code: Option<i32>, signal: Option<i32>, taint: u64) -> Vec<u8> {
        serde_json::to_vec(&Farewell { code, signal, uptime: 2.5, taint }).unwrap()
    }

    fn judge(script: impl FnOnce(&mut Run<'_>, &mut Encoder)) -> Result<Outcome, VmError> {
        let mut run = Run::new(MARKER, Accelerator::Tcg, Duration::from_secs(9), None, None, None);
        script(&mut run, &mut Encoder::new(MARKER));
        run.judge(End::Exited(std::process::ExitStatus::from_raw(0)), String::new())
    }

    fn port(run: &mut Run<'_>, encoder: &mut Encoder, kind: Kind, payload: &[u8]) {
        run.results(encoder.encode(kind, payload).concat().as_bytes());
    }

    #[test]
    fn an_ordinary_run() {
        let outcome = judge(|run, encoder| {
            run.console(b"[    0.000000] Linux version\r\n");
            port(run, encoder, Kind::Hello, &hello(true));
            port(run, encoder, Kind::Data, b"one\n");
            port(run, encoder, Kind::Data, b"two\n");
            port(run, encoder, Kind::Farewell, &farewell(Some(3), None, 0));
        })
        .unwrap();
        assert_eq!(outcome.exit_status, Some(ExitStatus::Code(3)));
        assert_eq!(outcome.result_lines(), ["one", "two"]);
        assert_eq!((outcome.boot_seconds, outcome.guest_seconds), (Some(1.5), Some(2.5)));
        assert_eq!(outcome.carrier, Some(Carrier::Uart));
        assert!(!outcome.success());
    }

    #[test]
    fn frames_by_the_kernel_log_survive_what_is_printed_between_and_leave_no_trace() {
        let outcome = judge(|run, encoder| {
            let mut log = |run: &mut Run<'_>, kind, payload: &[u8], damage: bool| {
                for line in encoder.encode(kind, payload) {
                    let line = line.trim_end();
                    let (head, tail) = line.split_at(line.len() - 3);
                    if damage {
                        run.console(format!("[    1.000000] {head}output of a program\r\n{tail}\r\n").as_bytes());
                    } else {
                        run.console(format!("half a line[    1.000000] {line}\r\n").as_bytes());
                    }
                    run.console(format!("[    1.000001] {line}\r\n").as_bytes());
                }
            };
            log(run, Kind::Hello, &hello(false), true);
            log(run, Kind::Data, &[b'x'; 2000], false);
            log(run, Kind::Data, b"end", true);
            log(run, Kind::Farewell, &farewell(Some(0), None, 0), false);
        })
        .unwrap();
        assert_eq!(outcome.results.len(), 2003);
        assert_eq!(outcome.carrier, Some(Carrier::KernelLog));
        assert!(!outcome.console.contains(MARKER), "{}", outcome.console);
    }

    #[test]
    fn a_second_copy_fills_a_gap_however_late() {
        let outcome = judge(|run, encoder| {
            run.console(encoder.encode(Kind::Hello, &hello(false)).concat().as_bytes());
            let lines = encoder.encode(Kind::Data, &[b'x'; 2000]);
            let farewell = encoder.encode(Kind::Farewell, &farewell(Some(0), None, 0));
            for line in lines[1..].iter().chain(&lines[..2]).chain(&farewell).chain(&lines) {
                run.console(line.as_bytes());
            }
        })
        .unwrap();
        assert_eq!(outcome.results, [b'x'; 2000]);
        assert_eq!(outcome.exit_status, Some(ExitStatus::Code(0)));
    }

    #[test]
    fn a_lost_frame_is_an_error_and_not_a_shorter_result() {
        let error = judge(|run, encoder| {
            port(run, encoder, Kind::Hello, &hello(true));
            encoder.encode(Kind::Data, b"never sent");
            port(run, encoder, Kind::Data, b"sent");
            port(run, encoder, Kind::Farewell, &farewell(Some(0), None, 0));
        })
        .unwrap_err();
        assert!(matches!(error, VmError::ResultsLost { missing: 1, .. }), "{error}");
    }

    #[test]
    fn complaints_of_the_kernel_fail_the_run() {
        let error = judge(|run, encoder| {
            port(run, encoder, Kind::Hello, &hello(true));
            run.console(b"[    1.000000] BUG: bad\n");
            port(run, encoder, Kind::Farewell, &farewell(Some(0), None, 0));
        })
        .unwrap_err();
        assert!(matches!(&error, VmError::Splat { .. }) && error.to_string().contains("BUG: bad"), "{error}");

        let error = judge(|run, encoder| {
            port(run, encoder, Kind::Hello, &hello(true));
            port(run, encoder, Kind::Farewell, &farewell(Some(0), None, 1 << 9));
        })
        .unwrap_err();
        assert!(matches!(&error, VmError::Splat { .. }) && error.to_string().contains("warned"), "{error}");
    }

    #[test]
    fn every_other_end_has_its_name() {
        let error = judge(|run, _| run.console(b"[    0.1] dead")).unwrap_err();
        assert!(matches!(&error, VmError::NeverReachedInit { .. }) && error.to_string().contains("dead"), "{error}");
        let error = judge(|run, encoder| port(run, encoder, Kind::Hello, &hello(true))).unwrap_err();
        assert!(matches!(error, VmError::WentDown { .. }), "{error}");
        let error = judge(|run, encoder| {
            port(run, encoder, Kind::Hello, &hello(true));
            port(run, encoder, Kind::Failure, b"cannot mount x");
        })
        .unwrap_err();
        assert!(matches!(&error, VmError::Init { reason, .. } if reason == "cannot mount x"), "{error}");
        let error = judge(|run, encoder| {
            port(run, encoder, Kind::Hello, &hello(true));
            port(run, encoder, Kind::Farewell, &farewell(None, Some(11), 0));
        })
        .unwrap_err();
        assert!(matches!(&error, VmError::Crashed { .. }) && error.to_string().contains("SIGSEGV"), "{error}");
        let error = judge(|run, encoder| port(run, encoder, Kind::Hello, b"{}")).unwrap_err();
        assert!(matches!(&error, VmError::Init { reason, .. } if reason.contains("version")), "{error}");
    }

    #[test]
    fn deadlines_follow_the_run() {
        let mut run =
            Run::new(MARKER, Accelerator::Kvm, Duration::from_secs(100), Some(Duration::from_secs(5)), None, None);
        let mut encoder = Encoder::new(MARKER);
        assert_eq!(run.deadline(), run.started + Duration::from_secs(5));
        port(&mut run, &mut encoder, Kind::Hello, &hello(true));
        assert_eq!(run.deadline(), run.started + Duration::from_secs(100));
        port(&mut run, &mut encoder, Kind::Farewell, &farewell(Some(0), None, 0));
        assert!(run.deadline() <= Instant::now() + POWER_OFF_LIMIT);
    }
}
