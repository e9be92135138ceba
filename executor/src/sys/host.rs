//! Small questions to the host that no crate answers.

use nix::errno::Errno;
use std::{
    ffi::{CStr, CString},
    path::Path,
};

/// Whether the file has an extended attribute of that name whose value is `1` (getxattr(2)).
pub fn is_marked(path: &Path, name: &CStr) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    let mut value = [0_u8; 8];
    // SAFETY: two terminated strings and a buffer with its length, all outliving the call.
    let result =
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    Errno::result(result).is_ok_and(|length| length >= 1 && value[0] == b'1')
}
