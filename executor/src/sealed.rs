//! What is to be run, as it travels from the server to the command's own process in sealed memfds: the request,
//! and the content of the files it brings.
//!
//! The monitor forwards both unread, but for their hashes in the audit trail; they are looked at after lock-down, with
//! no more rights than the command. What the files are called and how much of the content each has stands in the
//! request, so that its hash is that of the names too.

use cordon_protocol::FileIn;

pub use cordon_protocol::sealed::{FileHead, SealedRequest, Work};

/// The bytes of a memory file with the content of these files.
pub fn join(files: &[FileIn]) -> Vec<u8> {
    files.iter().map(|file| file.content.as_slice()).collect::<Vec<_>>().concat()
}

/// Each file with its content; none when there is less content than they say, or more.
pub fn divide<'a>(files: &'a [FileHead], content: &'a [u8]) -> Option<Vec<(&'a FileHead, &'a [u8])>> {
    let mut rest = content;
    let mut next = |file: &'a FileHead| {
        let (own, others) = rest.split_at_checked(usize::try_from(file.size).ok()?)?;
        rest = others;
        Some((file, own))
    };
    let divided = files.iter().map(&mut next).collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(divided)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_divided_as_the_files_say_or_not_at_all() {
        let files = [("a", 2), ("b", 0), ("c", 1)];
        let head = |(path, size): (&str, u64)| FileHead { path: path.into(), size, mode: 0o644 };
        let heads = files.map(head);
        let content = |size| vec![7; size];
        let whole: Vec<_> = heads
            .iter()
            .map(|head| FileIn {
                path: head.path.clone(),
                content: content(usize::try_from(head.size).unwrap()),
                mode: None,
            })
            .collect();
        let joined = join(&whole);
        let divided = divide(&heads, &joined).unwrap();
        assert!(
            divided
                .iter()
                .zip(&whole)
                .all(|((head, own), file)| head.path == file.path && *own == file.content)
        );
        for wrong in [0, 2, 4] {
            assert_eq!(divide(&heads, &content(wrong)), None, "{wrong}");
        }
        assert_eq!(divide(&[head(("a", u64::MAX))], &content(1)), None);
        assert_eq!(divide(&[], &[]), Some(Vec::new()));
    }
}
