// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Kernel images: which format, which architecture, what is inside, and which build it is.
//!
//! A bootable image is some code that unpacks, followed by the compressed kernel. To know that an image and a vmlinux
//! with DWARF are of one build, their build ids must be compared, and the image's is inside the compressed part. The
//! formats, and where they are described:
//!
//! * bzImage (x86): Documentation/arch/x86/boot.rst; the setup header at 0x1f1 says where the payload is, which is an
//!   ELF file;
//! * Image (arm64): Documentation/arch/arm64/booting.rst; raw memory, not compressed, or all of it by gzip;
//! * EFI zboot (arm64): drivers/firmware/efi/libstub/zboot-header.S; an EFI program with an Image as payload.
//!
//! The compression is recognised by its magic number and undone by the host's programs: kernels use filters and
//! containers (xz with a branch filter, lz4's legacy frames) that those all know.

use std::{
    fs, io,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use object::{Object, ReadCache};

use crate::arch::Arch;

/// No kernel is larger, unpacked.
const MAX_UNPACKED: u64 = 1 << 30;

/// What is wrong with an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is none of the known formats.
    #[error("neither a bzImage nor an arm64 Image or zboot image")]
    Format,
    /// A header points outside the file.
    #[error("truncated: its header tells of a payload that is not in the file")]
    Truncated,
    /// The payload is compressed in a way that has no program here.
    #[error("its payload is compressed in an unknown way (it begins with {0:02x?})")]
    Compression(Vec<u8>),
    /// The program that unpacks it could not be started.
    #[error("cannot run {program} (Debian package {package}) to unpack it")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The payload could not be unpacked.
    #[error("{program} cannot unpack it: {said}")]
    Unpack {
        /// The program.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// There is no build id in it.
    #[error("no GNU build id in it")]
    NoBuildId,
    /// The ELF file cannot be read.
    #[error("not a readable ELF file")]
    Elf(#[source] object::Error),
    /// Image and vmlinux are of different builds.
    #[error("build ids differ: {image} has {image_id}, {vmlinux} has {vmlinux_id}",
        image = image.display(), vmlinux = vmlinux.display())]
    BuildIdsDiffer {
        /// The image.
        image: PathBuf,
        /// Its build ids.
        image_id: String,
        /// The vmlinux.
        vmlinux: PathBuf,
        /// Its build id.
        vmlinux_id: String,
    },
}

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// x86's, with a compressed ELF file.
    BzImage,
    /// arm64's, raw.
    Image,
    /// arm64's, raw, in a gzip file.
    GzipImage,
    /// arm64's inside an EFI program.
    Zboot,
}

/// A kernel image in memory.
#[derive(Debug)]
pub struct KernelImage {
    format: Format,
    bytes: Vec<u8>,
}

impl KernelImage {
    /// Reads an image and recognises its format.
    ///
    /// # Errors
    /// If it cannot be read or is not a kernel image.
    pub fn read(path: &Path) -> Result<KernelImage, ImageError> {
        KernelImage::from_bytes(fs::read(path)?)
    }

    /// [`KernelImage::read`] from memory.
    ///
    /// # Errors
    /// If it is not a kernel image.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<KernelImage, ImageError> {
        let has = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
        let format = if has(0x202, b"HdrS") {
            Format::BzImage
        } else if has(0, b"MZ") && has(4, b"zimg") {
            Format::Zboot
        } else if has(0x38, b"ARM\x64") {
            Format::Image
        } else if has(0, &[0x1f, 0x8b]) {
            Format::GzipImage
        } else {
            return Err(ImageError::Format);
        };
        Ok(KernelImage { format, bytes })
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The architecture it is for.
    pub fn arch(&self) -> Arch {
        match self.format {
            Format::BzImage => Arch::X86_64,
            Format::Image | Format::GzipImage | Format::Zboot => Arch::Arm64,
        }
    }

    /// The kernel inside, unpacked: an ELF file for a bzImage, else a raw Image.
    ///
    /// # Errors
    /// If a header lies or the payload cannot be unpacked.
    pub fn unpack(&self) -> Result<Vec<u8>, ImageError> {
        let bytes = self.bytes.as_slice();
        match self.format {
            Format::Image => Ok(bytes.to_vec()),
            Format::GzipImage => decompress(bytes),
            Format::Zboot => decompress(slice(bytes, word(bytes, 8)?, word(bytes, 12)?)?),
            Format::BzImage => {
                // 0 means 4, says the boot protocol.
                let sectors = match bytes.get(0x1f1) {
                    None => return Err(ImageError::Truncated),
                    Some(0) => 4,
                    Some(sectors) => u64::from(*sectors),
                };
                let start = (sectors + 1) * 512 + word(bytes, 0x248)?;
                decompress(slice(bytes, start, word(bytes, 0x24c)?)?)
            }
        }
    }

    /// The build ids in it. An ELF file tells its own; raw memory also holds the vDSO's.
    ///
    /// # Errors
    /// If it cannot be unpacked or has none.
    pub fn build_ids(&self) -> Result<Vec<Vec<u8>>, ImageError> {
        let kernel = self.unpack()?;
        let ids = match object::File::parse(kernel.as_slice()) {
            Ok(file) => file.build_id().map_err(ImageError::Elf)?.map(<[u8]>::to_vec).into_iter().collect(),
            Err(_) => notes(&kernel),
        };
        if ids.is_empty() { Err(ImageError::NoBuildId) } else { Ok(ids) }
    }
}

/// A little-endian word of a header.
fn word(bytes: &[u8], at: usize) -> Result<u64, ImageError> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(ImageError::Truncated)?;
    Ok(u64::from(u32::from_le_bytes(*word)))
}

fn slice(bytes: &[u8], start: u64, length: u64) -> Result<&[u8], ImageError> {
    let range = || Some(usize::try_from(start).ok()?..usize::try_from(start.checked_add(length)?).ok()?);
    range().and_then(|range| bytes.get(range)).filter(|bytes| !bytes.is_empty()).ok_or(ImageError::Truncated)
}

/// Build ids by the shape of their note: name size 4, descriptor size 20 (SHA-1) or 16, type 3, "GNU".
fn notes(memory: &[u8]) -> Vec<Vec<u8>> {
    const TAIL: &[u8] = b"\x03\0\0\0GNU\0";
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut from = 0;
    while let Some(at) = memory.get(from..).and_then(|rest| find(rest, TAIL)) {
        let tail = from + at;
        from = tail + TAIL.len();
        let Some(sizes) = tail.checked_sub(8).and_then(|start| memory.get(start..tail)) else {
            continue;
        };
        let length: usize = match sizes {
            [4, 0, 0, 0, 20, 0, 0, 0] => 20,
            [4, 0, 0, 0, 16, 0, 0, 0] => 16,
            _ => continue,
        };
        if let Some(id) = memory.get(from..from + length)
            && !found.iter().any(|known| known == id)
        {
            found.push(id.to_vec());
        }
    }
    found
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, _) = needle.split_first()?;
    let mut from = 0;
    loop {
        let at = from + haystack.get(from..)?.iter().position(|byte| byte == first)?;
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// A compression: its magic number, the program that undoes it with its arguments, the Debian package that has it.
type Compression = (&'static [u8], &'static str, &'static [&'static str], &'static str);

const COMPRESSIONS: &[Compression] = &[
    (&[0x1f, 0x8b], "gzip", &["-dc"], "gzip"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", &["-dc", "-q"], "zstd"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", &["-dc", "--single-stream"], "xz-utils"),
    (&[0x5d, 0, 0], "xz", &["-dc", "--format=lzma"], "xz-utils"),
    (&[0x02, 0x21, 0x4c, 0x18], "lz4", &["-dc", "-q"], "lz4"),
    (b"BZh", "bzip2", &["-dc"], "bzip2"),
];

fn decompress(payload: &[u8]) -> Result<Vec<u8>, ImageError> {
    let (magic, program, arguments, package) = COMPRESSIONS
        .iter()
        .find(|(magic, ..)| payload.starts_with(magic))
        .ok_or_else(|| ImageError::Compression(payload[..payload.len().min(6)].to_vec()))?;
    // The kernel's build appends the unpacked size to what has no such field of its own (`size_append` in
    // scripts/Makefile.lib), and programs take that for garbage.
    let appended = if *magic == [0x1f, 0x8b] { 0 } else { 4 };
    let stream = &payload[..payload.len().saturating_sub(appended)];
    pipe_through(program, arguments, package, stream).or_else(|error| match error {
        ImageError::Unpack { .. } if appended > 0 => pipe_through(program, arguments, package, payload),
        error => Err(error),
    })
}

fn pipe_through(
    program: &'static str,
    arguments: &[&str],
    package: &'static str,
    input: &[u8],
) -> Result<Vec<u8>, ImageError> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| ImageError::NoProgram { program, package, error })?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (output, said) = std::thread::scope(|scope| {
        // It may end before it has read all; its exit status tells whether that is an error.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        let said = scope.spawn(move || {
            let mut said = String::new();
            stderr.map(|mut stderr| stderr.read_to_string(&mut said));
            said
        });
        let mut output = Vec::new();
        let read = stdout.map(|stdout| stdout.take(MAX_UNPACKED + 1).read_to_end(&mut output));
        (read.transpose().map(|_| output), said.join().unwrap_or_default())
    });
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error.into());
        }
    };
    let status = child.wait()?;
    if output.len() as u64 > MAX_UNPACKED {
        return Err(ImageError::Unpack { program, said: "it is larger than any kernel".to_owned() });
    }
    if !status.success() {
        return Err(ImageError::Unpack { program, said: format!("{status}: {}", said.trim()) });
    }
    Ok(output)
}

/// The build id of an ELF file.
///
/// # Errors
/// If it cannot be read, is not an ELF file or has none.
pub fn elf_build_id(path: &Path) -> Result<Vec<u8>, ImageError> {
    let cache = ReadCache::new(fs::File::open(path)?);
    let file = object::File::parse(&cache).map_err(ImageError::Elf)?;
    file.build_id().map_err(ImageError::Elf)?.map(<[u8]>::to_vec).ok_or(ImageError::NoBuildId)
}

/// Checks that an image and a vmlinux are of one build and returns its id in hexadecimal.
///
/// # Errors
/// If either has none or they differ.
pub fn check_pair(image: &Path, vmlinux: &Path) -> Result<String, ImageError> {
    let wanted = elf_build_id(vmlinux)?;
    let ids = KernelImage::read(image)?.build_ids()?;
    if !ids.contains(&wanted) {
        return Err(ImageError::BuildIdsDiffer {
            image: image.to_owned(),
            image_id: ids.iter().map(|id| hexadecimal(id)).collect::<Vec<_>>().join(" and "),
            vmlinux: vmlinux.to_owned(),
            vmlinux_id: hexadecimal(&wanted),
        });
    }
    Ok(hexadecimal(&wanted))
}

/// The GNU build id of a vmlinux, in hexadecimal.
///
/// # Errors
/// If it cannot be read or has none.
pub fn vmlinux_build_id(vmlinux: &Path) -> Result<String, ImageError> {
    Ok(hexadecimal(&elf_build_id(vmlinux)?))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn note(id: &[u8]) -> Vec<u8> {
        let mut note = vec![4, 0, 0, 0, id.len() as u8, 0, 0, 0, 3, 0, 0, 0];
        note.extend_from_slice(b"GNU\0");
        note.extend_from_slice(id);
        note
    }

    fn raw_kernel(ids: &[[u8; 20]]) -> Vec<u8> {
        let mut kernel = vec![0; 0x38];
        kernel.extend_from_slice(b"ARM\x64");
        kernel.extend_from_slice(&[0; 100]);
        for id in ids {
            kernel.extend(note(id));
            kernel.extend_from_slice(&[0x90; 33]);
        }
        kernel
    }

    fn compressed(program: &str, arguments: &[&str], bytes: &[u8]) -> Vec<u8> {
        let mut child =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        child.wait_with_output().unwrap().stdout
    }

    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&7u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(&[0xcc; 7]);
        image.extend_from_slice(payload);
        image.extend_from_slice(&[0xcc; 99]);
        image
    }

    #[test]
    fn a_payload_is_found_and_unpacked_whatever_compressed_it() {
        let kernel = raw_kernel(&[[7; 20], [9; 20]]);
        let size = (kernel.len() as u32).to_le_bytes();
        for (program, arguments, appended) in [
            ("gzip", &["-c"][..], false),
            ("xz", &["-c", "--check=crc32"], true),
            ("xz", &["-c", "--format=lzma"], true),
            ("zstd", &["-c", "-q"], true),
        ] {
            let mut payload = compressed(program, arguments, &kernel);
            if appended {
                payload.extend_from_slice(&size);
            }
            let image = KernelImage::from_bytes(bzimage(&payload)).unwrap();
            assert_eq!((image.format(), image.arch()), (Format::BzImage, Arch::X86_64));
            assert_eq!(image.unpack().unwrap(), kernel, "{program}");
            assert_eq!(image.build_ids().unwrap(), [vec![7; 20], vec![9; 20]]);
        }
    }

    #[test]
    fn arm64_images_are_told_apart() {
        let kernel = raw_kernel(&[[3; 20]]);
        let packed = compressed("gzip", &["-c"], &kernel);
        let mut zboot = b"MZ\0\0zimg".to_vec();
        zboot.extend_from_slice(&64u32.to_le_bytes());
        zboot.extend_from_slice(&(packed.len() as u32).to_le_bytes());
        zboot.resize(64, 0);
        zboot.extend_from_slice(&packed);
        for (bytes, format) in [(kernel.clone(), Format::Image), (packed, Format::GzipImage), (zboot, Format::Zboot)] {
            let image = KernelImage::from_bytes(bytes).unwrap();
            assert_eq!((image.format(), image.arch()), (format, Arch::Arm64));
            assert_eq!(image.unpack().unwrap(), kernel);
            assert_eq!(image.build_ids().unwrap(), [vec![3; 20]]);
        }
    }

    #[test]
    fn differing_builds_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("vmlinuz");
        fs::write(&image, raw_kernel(&[[3; 20]])).unwrap();
        // The test's own executable stands for a vmlinux; cargo's linkers give it a build id, or none at all.
        let vmlinux = std::env::current_exe().unwrap();
        match check_pair(&image, &vmlinux) {
            Err(ImageError::BuildIdsDiffer { image_id, .. }) => {
                assert_eq!(image_id, "03".repeat(20));
            }
            Err(ImageError::NoBuildId) => assert!(elf_build_id(&vmlinux).is_err()),
            other => panic!("{other:?}"),
        }
        assert!(matches!(elf_build_id(&image), Err(ImageError::Elf(_))));
    }

    #[test]
    fn lies_and_garbage_are_errors() {
        assert!(matches!(KernelImage::from_bytes(vec![]), Err(ImageError::Format)));
        assert!(matches!(KernelImage::from_bytes(b"\x7fELF".to_vec()), Err(ImageError::Format)));
        let mut image = bzimage(b"payload");
        assert!(matches!(
            KernelImage::from_bytes(image.clone()).unwrap().unpack(),
            Err(ImageError::Compression(magic)) if magic == b"payloa"
        ));
        image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(KernelImage::from_bytes(image).unwrap().unpack(), Err(ImageError::Truncated)));
        let cut = bzimage(&[0x1f, 0x8b, 8, 0, 0, 0]);
        assert!(matches!(KernelImage::from_bytes(cut).unwrap().unpack(), Err(ImageError::Unpack { .. })));
    }

    proptest! {
        #[test]
        fn headers_do_not_panic(noise in prop::collection::vec(any::<u8>(), 0..700), kind in 0..4) {
            let mut bytes = noise;
            // No compression's magic number follows by chance, so no program is started.
            for (at, magic) in [(0x202, b"HdrS".as_slice()), (4, b"zimg"), (0x38, b"ARM\x64"), (0, b"MZ")] {
                let wanted = match kind { 0 => at == 0x202, 1 => at == 4 || at == 0, 2 => at == 0x38, _ => false };
                if wanted && bytes.len() >= at + magic.len() {
                    bytes[at..at + magic.len()].copy_from_slice(magic);
                }
            }
            if let Ok(image) = KernelImage::from_bytes(bytes) {
                let _ = image.unpack();
            }
            let _ = notes(&image_noise());
        }
    }

    fn image_noise() -> Vec<u8> {
        let mut bytes = note(&[1; 20]);
        bytes.truncate(30);
        bytes
    }
}
