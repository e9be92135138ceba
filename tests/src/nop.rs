//! The smallest program there is: what starting it costs is what starting anything costs at least.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

/// Where the code and the file's one segment are loaded.
const BASE: u64 = 0x40_0000;
/// Bytes of an ELF header and one program header (elf(5)).
const HEADERS: u64 = 64 + 56;
/// `mov eax, 60; xor edi, edi; syscall`: exit(0).
const CODE: [u8; 9] = [0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];

/// The bytes of a static program for x86_64 that does nothing but exit with 0.
pub fn image() -> Vec<u8> {
    let size = HEADERS + CODE.len() as u64;
    let mut image = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    image.resize(16, 0);
    // An executable for x86_64, entered right behind the headers; no section headers.
    image.extend([2_u16, 62].map(u16::to_le_bytes).concat());
    image.extend(1_u32.to_le_bytes());
    image.extend([BASE + HEADERS, 64, 0].map(u64::to_le_bytes).concat());
    image.extend(0_u32.to_le_bytes());
    image.extend([64_u16, 56, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    // One segment: the whole file, to be read and executed.
    image.extend([1_u32, 5].map(u32::to_le_bytes).concat());
    image.extend([0, BASE, BASE, size, size, 0x1000].map(u64::to_le_bytes).concat());
    image.extend(CODE);
    image
}

/// Writes the program to this path, executable by everybody.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path) -> io::Result<()> {
    fs::write(path, image())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_image_is_a_program_that_exits_with_zero() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nop");
        write(&path).unwrap();
        assert_eq!(Command::new(&path).status().unwrap().code(), Some(0));
    }
}
