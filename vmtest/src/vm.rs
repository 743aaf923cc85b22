// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! One virtual machine: described, booted, watched until its program has ended, and judged.

mod run;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use object::{
    LittleEndian, ReadCache,
    elf::PT_INTERP,
    read::elf::{ElfFile64, FileHeader, ProgramHeader},
};

use siteseer_kernels::{
    Arch,
    image::{Format, ImageError, KernelImage},
};

use crate::{
    accel::{self, Accel, Accelerator, Memory},
    error::VmError,
    handover::{ORDERS_PATH, Orders},
    initramfs::Initramfs,
    machine::machine,
    outcome::Outcome,
    qemu, turn,
};

/// Where a program that is not its own init lies in the guest.
const PROGRAM_PATH: &str = "/program";

/// What every guest is told. The last one that names a parameter wins, so [`Vm::append`] can change these.
///
/// * `panic=-1` restarts at once, which `-no-reboot` makes QEMU's end.
/// * `printk.time=1` marks kernel messages, which finding splats rests upon; level 7 shows all but debugging.
/// * `printk.devkmsg=on` lifts the rate limit from init's frames, should they have to go that way.
/// * `log_buf_len`: frames in the kernel log wait there while another task prints it. The default buffer, 128 KiB, is
///   overwritten before a slow console has printed it.
/// * `random.trust_cpu=on`: the emulated CPU has a random number instruction; nothing waits for entropy.
/// * A guest on a busy host stands still for many seconds without being stuck, and a CPU that prints to an emulated
///   serial port runs nothing else meanwhile. That must not count as a stall: RCU and the watchdog get the kernel's
///   upper bounds, and so do work queues, which are reported after 30 s otherwise. A guest that hangs is found by its
///   time limit.
const COMMAND_LINE: &str = "panic=-1 printk.time=1 loglevel=7 printk.devkmsg=on log_buf_len=4M random.trust_cpu=on \
     rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60 workqueue.watchdog_thresh=300";

/// A virtual machine to be booted once.
///
/// ```no_run
/// use std::{path::Path, time::Duration};
/// use siteseer_vmtest::{Arch, Vm, build_guest};
///
/// let program = build_guest("my-tests", "guest", "dev")?;
/// let outcome = Vm::new(Arch::X86_64, Path::new("vmlinuz"))
///     .init(&program)
///     .arg("--quick")
///     .time_limit(Duration::from_secs(60))
///     .run()?;
/// println!("{:?}: {:?}", outcome.exit_status, outcome.result_lines());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing happens before `run`"]
pub struct Vm<'a> {
    arch: Arch,
    kernel: PathBuf,
    init: Option<PathBuf>,
    program: Option<PathBuf>,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    files: Vec<(PathBuf, String)>,
    memory: Option<u32>,
    cpus: u32,
    time_limit: Duration,
    accel: Accel,
    counts_instructions: bool,
    append: Vec<String>,
    qemu_arguments: Vec<OsString>,
    results_device: String,
    console: Option<Box<dyn Write + Send + 'a>>,
    on_results: Option<Box<run::TakeResults<'a>>>,
}

/// What a boot needs and all attempts share.
struct Prepared {
    qemu: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
    memory: u32,
    marker: String,
    directory: tempfile::TempDir,
}

impl<'a> Vm<'a> {
    /// A machine that boots this kernel image, with two CPUs, a time limit of five minutes, and as much memory as its
    /// files need, but no less than 1 GiB.
    pub fn new(arch: Arch, kernel_image: &Path) -> Vm<'a> {
        Vm {
            arch,
            kernel: kernel_image.to_owned(),
            init: None,
            program: None,
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            files: Vec::new(),
            memory: None,
            cpus: 2,
            time_limit: Duration::from_secs(300),
            accel: Accel::Auto,
            counts_instructions: false,
            append: Vec::new(),
            qemu_arguments: Vec::new(),
            results_device: machine(arch).results.to_owned(),
            console: None,
            on_results: None,
        }
    }

    /// The static program that becomes process 1. It calls [`crate::guest::main`], which then runs it as a child;
    /// with [`Vm::program`], it is `vmtest-init`, or any other that calls it.
    pub fn init(mut self, program: &Path) -> Self {
        self.init = Some(program.to_owned());
        self
    }

    /// A static program for init to run instead of itself.
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Adds an argument for the program.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments for the program.
    pub fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the program's environment, which else holds `PATH`, `HOME` and `TERM`.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Puts a file of the host into the guest, with its permissions. The guest path is absolute and not in `/proc`,
    /// `/sys` or `/dev`.
    pub fn file(mut self, host_path: &Path, guest_path: impl Into<String>) -> Self {
        self.files.push((host_path.to_owned(), guest_path.into()));
        self
    }

    /// The guest's memory in MiB.
    pub fn memory(mut self, mebibytes: u32) -> Self {
        self.memory = Some(mebibytes);
        self
    }

    /// The number of CPUs, at least one.
    pub fn cpus(mut self, count: u32) -> Self {
        self.cpus = count.max(1);
        self
    }

    /// Host time from QEMU's start after which the guest is killed.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// What runs the guest's instructions.
    pub fn accel(mut self, accel: Accel) -> Self {
        self.accel = accel;
        self
    }

    /// Lets the guest's time go by instructions: each takes one nanosecond, and a guest that waits takes none of the
    /// host's time (QEMU's `-icount shift=0,sleep=off`). What the guest measures with its clocks then does not depend
    /// on how busy the host is. It takes TCG, whatever [`Vm::accel`] says.
    pub fn count_instructions(mut self) -> Self {
        self.counts_instructions = true;
        self
    }

    /// Adds to the kernel command line. KASLR is on unless this says `nokaslr`.
    pub fn append(mut self, parameters: impl Into<String>) -> Self {
        self.append.push(parameters.into());
        self
    }

    /// Adds an argument for QEMU, such as `-s` for a debugger.
    pub fn qemu_arg(mut self, argument: impl Into<OsString>) -> Self {
        self.qemu_arguments.push(argument.into());
        self
    }

    /// The guest kernel's name of the results port (`ttyS1`), for one that names its ports in another order. If there
    /// is no such port, the results go by the kernel log.
    pub fn results_device(mut self, name: impl Into<String>) -> Self {
        self.results_device = name.into();
        self
    }

    /// Where the console goes while the guest runs, line by line. [`Outcome::console`] has it all in any case.
    pub fn console(mut self, sink: impl Write + Send + 'a) -> Self {
        self.console = Some(Box::new(sink));
        self
    }

    /// Is called with the program's results as they arrive, in pieces of any size. [`Outcome::results`] has them
    /// all in any case.
    pub fn on_results(mut self, take: impl FnMut(&[u8]) + Send + 'a) -> Self {
        self.on_results = Some(Box::new(take));
        self
    }

    /// Boots the machine and waits until its program has ended.
    ///
    /// A program that exits with another code than 0 is an ordinary outcome.
    ///
    /// # Errors
    /// If the machine could not be started, if it did not come to its end in time, if its results are not whole, if
    /// the kernel complained, or if a signal killed the program. [`VmError::outcome`] then has what is known.
    pub fn run(mut self) -> Result<Outcome, VmError> {
        let prepared = self.prepare()?;
        match self.accel {
            _ if self.counts_instructions => self.attempt(&prepared, Accelerator::Tcg, None),
            Accel::Tcg => self.attempt(&prepared, Accelerator::Tcg, None),
            Accel::Kvm => {
                accel::kvm_accessible(self.arch).map_err(VmError::NoKvm)?;
                self.attempt(&prepared, Accelerator::Kvm, None)
            }
            Accel::Auto => self.run_auto(&prepared),
        }
    }

    fn run_auto(&mut self, prepared: &Prepared) -> Result<Outcome, VmError> {
        if accel::kvm_accessible(self.arch).is_err() {
            return self.attempt(prepared, Accelerator::Tcg, None);
        }
        let memory = Memory::new(&prepared.qemu);
        match memory.recall() {
            Some(verdict) if verdict.works => {
                return self.attempt(prepared, Accelerator::Kvm, None);
            }
            Some(_) => return self.attempt(prepared, Accelerator::Tcg, None),
            None => {}
        }
        let first = self.attempt(prepared, Accelerator::Kvm, Some(accel::PROOF_LIMIT.min(self.time_limit)));
        match first {
            Err(VmError::NeverReachedInit { how, qemu, .. }) => {
                let second = self.attempt(prepared, Accelerator::Tcg, None);
                // Only a kernel that does reach init elsewhere shows that KVM was at fault.
                if !matches!(second, Err(VmError::NeverReachedInit { .. } | VmError::Host { .. })) {
                    memory.remember(false, format!("{how} {qemu}").trim().to_owned());
                }
                second
            }
            other => {
                if other.as_ref().map_or_else(VmError::outcome, Some).is_some() {
                    memory.remember(true, "a guest reached init".to_owned());
                }
                other
            }
        }
    }

    /// Checks what can be checked before anything is started, and writes the initramfs.
    fn prepare(&self) -> Result<Prepared, VmError> {
        let machine = machine(self.arch);
        let image_error = |error| VmError::Image { path: self.kernel.clone(), error };
        let image = KernelImage::read(&self.kernel).map_err(image_error)?;
        if image.arch() != self.arch {
            return Err(VmError::ImageArch { path: self.kernel.clone(), found: image.arch(), wanted: self.arch });
        }
        let init = self.init.as_deref().ok_or(VmError::NoInit)?;
        for program in [Some(init), self.program.as_deref()].into_iter().flatten() {
            check_program(program, self.arch)
                .map_err(|reason| VmError::Program { path: program.to_owned(), reason })?;
        }
        let qemu = qemu::find_program(machine.qemu)
            .ok_or(VmError::NoQemu { program: machine.qemu.to_owned(), package: machine.qemu_package })?;

        let directory = tempfile::Builder::new()
            .prefix("vmtest-")
            .tempdir()
            .map_err(VmError::host("cannot make a temporary directory"))?;
        let kernel = match image.format() {
            Format::BzImage | Format::Image => self.kernel.clone(),
            // QEMU unpacks these since 8.1 at the earliest, and not every compression.
            Format::GzipImage | Format::Zboot => {
                let path = directory.path().join("Image");
                let unpacked = image.unpack().map_err(image_error)?;
                fs::write(&path, unpacked).map_err(|error| image_error(ImageError::Read(error)))?;
                path
            }
        };
        let marker = random_marker().map_err(VmError::host("cannot read random numbers"))?;
        let path = directory.path().join("initramfs.cpio");
        let initramfs_size = self.write_initramfs(init, &marker, &path)?;
        let memory = self.guest_memory(initramfs_size)?;
        Ok(Prepared { qemu, kernel, initramfs: path, memory, marker, directory })
    }

    fn write_initramfs(&self, init: &Path, marker: &str, path: &Path) -> Result<u64, VmError> {
        let orders = Orders {
            marker: marker.to_owned(),
            results_device: self.results_device.clone(),
            program: self.program.as_ref().map(|_| PROGRAM_PATH.to_owned()),
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
        };
        let mut initramfs = Initramfs::new();
        for (host, guest) in &self.files {
            initramfs.file(host, guest)?;
        }
        initramfs.file(init, "/init")?;
        if let Some(program) = &self.program {
            initramfs.file(program, PROGRAM_PATH)?;
        }
        let text = serde_json::to_vec_pretty(&orders)
            .map_err(|error| VmError::host("cannot write init's orders")(error.into()))?;
        initramfs.bytes(text, 0o644, ORDERS_PATH)?;
        let file = fs::File::create(path).map_err(VmError::host("cannot make the initramfs"))?;
        Ok(initramfs.write(BufWriter::with_capacity(1 << 20, file))?)
    }

    /// The archive lies in memory while it is unpacked into memory.
    fn guest_memory(&self, initramfs_size: u64) -> Result<u32, VmError> {
        let initramfs = initramfs_size.div_ceil(1 << 20);
        let needed = 2 * initramfs + 256;
        match self.memory {
            Some(memory) if u64::from(memory) < needed => Err(VmError::Memory { memory, initramfs, needed }),
            Some(memory) => Ok(memory),
            None => Ok(u32::try_from((needed + 512).max(1024)).unwrap_or(u32::MAX)),
        }
    }

    fn qemu_command(&self, prepared: &Prepared, accelerator: Accelerator, results: &Path) -> Vec<OsString> {
        let machine = machine(self.arch);
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        add(machine.board);
        add(match accelerator {
            Accelerator::Tcg => machine.tcg,
            Accelerator::Kvm => machine.kvm,
        });
        add(&["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"]);
        add(&["-smp", &self.cpus.to_string(), "-m", &format!("{}M", prepared.memory)]);
        add(&["-chardev", "stdio,id=console,signal=off"]);
        add(&["-chardev", &format!("file,id=results,path={}", results.to_string_lossy().replace(',', ",,"))]);
        add(machine.ports);
        arguments.extend([
            "-kernel".into(),
            prepared.kernel.clone().into_os_string(),
            "-initrd".into(),
            prepared.initramfs.clone().into_os_string(),
            "-append".into(),
            self.command_line(accelerator).into(),
        ]);
        if self.counts_instructions {
            arguments.extend(["-icount".into(), "shift=0,sleep=off".into()]);
        }
        arguments.extend(self.qemu_arguments.iter().cloned());
        arguments
    }

    fn command_line(&self, accelerator: Accelerator) -> String {
        let machine = machine(self.arch);
        let mut line = format!("console={} {} {COMMAND_LINE}", machine.console, machine.early_console);
        let emulated = match accelerator {
            Accelerator::Tcg => machine.tcg_parameters,
            Accelerator::Kvm => "",
        };
        let appended = self.append.iter().map(String::as_str);
        for parameters in std::iter::once(emulated).filter(|parameters| !parameters.is_empty()).chain(appended) {
            line.push(' ');
            line.push_str(parameters);
        }
        line
    }

    /// Boots once. With a proof limit, init has to be reached within it, and the console is not shown before.
    fn attempt(
        &mut self,
        prepared: &Prepared,
        accelerator: Accelerator,
        proof: Option<Duration>,
    ) -> Result<Outcome, VmError> {
        let results = prepared.directory.path().join(format!("results.{accelerator}"));
        let arguments = self.qemu_command(prepared, accelerator, &results);
        // Before the clock of the time limit starts.
        let _turn = turn::wait().map_err(VmError::host("cannot wait for other machines"))?;
        let mut run = run::Run::new(
            &prepared.marker,
            accelerator,
            self.time_limit,
            proof,
            self.console.as_mut().map(|sink| &mut **sink as &mut (dyn Write + Send)),
            self.on_results.as_mut().map(|take| &mut **take as &mut (dyn FnMut(&[u8]) + Send)),
        );
        let mut qemu = qemu::Qemu::start(&prepared.qemu, &arguments, &results)
            .map_err(VmError::host(format!("cannot start {}", prepared.qemu.display())))?;
        let end = qemu.watch(&mut run).map_err(VmError::host("cannot watch QEMU"))?;
        run.judge(end, qemu.said())
    }
}

/// A program for the initramfs is an ELF file of the guest's architecture that needs no dynamic loader.
fn check_program(path: &Path, arch: Arch) -> Result<(), String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<LittleEndian, _>::parse(&cache).map_err(|error| format!("not a 64-bit ELF file: {error}"))?;
    if elf.elf_header().e_machine(LittleEndian) != machine(arch).elf {
        return Err(format!("it is not for {arch}"));
    }
    if elf.elf_program_headers().iter().any(|header| header.p_type(LittleEndian) == PT_INTERP) {
        return Err("it is linked dynamically, and the guest has no libraries: link it with \
                    RUSTFLAGS='-C target-feature=+crt-static' (build_guest does) or -static"
            .to_owned());
    }
    Ok(())
}

fn random_marker() -> io::Result<String> {
    let mut bytes = [0u8; 8];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
