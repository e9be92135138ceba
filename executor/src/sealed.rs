//! What is to be run, as it travels from the server to the command's own process in sealed memfds: the request,
//! and the content of the files it brings. And the content of a file that is put in from standard input, in pieces.
//!
//! The monitor forwards both unread, but for their hashes in the audit trail; they are looked at after lock-down, with
//! no more rights than the command. What the files are called and how much of the content each has stands in the
//! request, so that its hash is that of the names too.

use cordon_protocol::FileIn;
use std::io::{self, Read};

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

/// What goes before a piece of a file's content in the standard input of whoever writes it.
pub type PieceHead = [u8; 4];

/// The end of a file's content. The end of the pipe is none: whatever ends the server half makes that one too.
pub const CONTENT_END: PieceHead = [0; 4];

/// The head of a piece: its length. One without content has none, it would be the end.
pub fn piece_head(piece: &[u8]) -> Option<PieceHead> {
    let length = u32::try_from(piece.len()).ok().filter(|length| *length > 0);
    length.map(u32::to_le_bytes)
}

/// Content that comes in pieces; it fails where it ends otherwise than with [`CONTENT_END`].
#[derive(Debug)]
pub struct Pieces<R> {
    from: R,
    /// Bytes of a piece that are still to come.
    left: u64,
    over: bool,
}

impl<R> Pieces<R> {
    /// All of the content that comes from there.
    pub fn new(from: R) -> Self {
        Self { from, left: 0, over: false }
    }
}

impl<R: Read> Read for Pieces<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let broken_off = || io::Error::new(io::ErrorKind::UnexpectedEof, "its content was broken off");
        if self.over || buffer.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            let mut head = PieceHead::default();
            self.from.read_exact(&mut head).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => broken_off(),
                _ => error,
            })?;
            self.left = u32::from_le_bytes(head).into();
            self.over = head == CONTENT_END;
            if self.over {
                return Ok(0);
            }
        }
        let read = self.from.by_ref().take(self.left).read(buffer)?;
        self.left -= read as u64;
        if read == 0 { Err(broken_off()) } else { Ok(read) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_in_pieces_is_whole_with_its_end_and_not_without() {
        let pieces: [&[u8]; 4] = [b"a", &[0; 70_000], b"", b"end"];
        let mut sent = Vec::new();
        for piece in pieces {
            if let Some(head) = piece_head(piece) {
                sent.extend(head.iter().chain(piece));
            }
        }
        let read = |sent: &[u8]| {
            let mut content = Vec::new();
            Pieces::new(sent).read_to_end(&mut content).map(|_| content)
        };
        // In a head, between two, in a piece, after the last one.
        for length in [0, 1, 4, 5, 7, 9, 10, 5000, sent.len() - 3, sent.len() - 1, sent.len()] {
            let error = read(&sent[..length]).unwrap_err();
            assert_eq!(error.to_string(), "its content was broken off", "{length}");
        }
        sent.extend(&CONTENT_END[..3]);
        assert!(read(&sent).is_err());
        sent.extend([CONTENT_END[3], 7]);
        assert_eq!(read(&sent).unwrap(), pieces.concat());
        assert_eq!(read(&CONTENT_END).unwrap(), b"");
    }

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
