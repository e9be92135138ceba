//! Fields of a message: each at its offset, padded with zeros.

use super::{MESSAGE_LEN, Malformed, Message};

/// Stands for none in an optional field.
const UNSET: u64 = u64::MAX;

/// Writes fields one after the other; a message is far larger than what is ever written.
pub(super) struct Writer {
    pub(super) message: Message,
    at: usize,
}

impl Writer {
    pub(super) fn new(kind: u64) -> Self {
        let mut writer = Self { message: [0; MESSAGE_LEN], at: 0 };
        writer.number(kind);
        writer
    }

    pub(super) fn number(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes(), 8);
    }

    pub(super) fn optional(&mut self, value: Option<u64>) {
        self.number(value.unwrap_or(UNSET));
    }

    /// A signed 32-bit value or none.
    pub(super) fn optional_i32(&mut self, value: Option<i32>) {
        self.optional(value.map(|v| u64::from(u32::from_le_bytes(v.to_le_bytes()))));
    }

    /// The first `room` bytes of `bytes`, padded with zeros.
    pub(super) fn bytes(&mut self, bytes: &[u8], room: usize) {
        let taken = bytes.len().min(room);
        if let Some(target) = self.message.get_mut(self.at..self.at + taken) {
            target.copy_from_slice(&bytes[..taken]);
        }
        self.at += room;
    }

    /// Text cut to `room` bytes at a character's boundary.
    pub(super) fn text(&mut self, text: &str, room: usize) {
        let mut end = text.len().min(room);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes(&text.as_bytes()[..end], room);
    }

    pub(super) fn index<T: PartialEq>(&mut self, values: &[T], value: &T) {
        self.optional(values.iter().position(|v| v == value).map(|i| i as u64));
    }

    /// How many there are, then each.
    pub(super) fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|item| write(self, item));
    }

    pub(super) fn set<T: PartialEq>(&mut self, values: &[T], members: &[T]) {
        let bit = |(i, v): (usize, &T)| u64::from(members.contains(v)) << i;
        self.number(values.iter().enumerate().map(bit).sum());
    }
}

/// Takes fields one after the other; what is not there or not a value of its kind is malformed.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (field, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(field)
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().map_err(|_| Malformed)?))
    }

    pub(super) fn optional(&mut self) -> Result<Option<u64>, Malformed> {
        Ok(Some(self.number()?).filter(|v| *v != UNSET))
    }

    pub(super) fn number_u32(&mut self) -> Result<u32, Malformed> {
        self.number()?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn optional_i32(&mut self) -> Result<Option<i32>, Malformed> {
        let value = self.optional()?.map(u32::try_from).transpose().map_err(|_| Malformed)?;
        Ok(value.map(|v| i32::from_le_bytes(v.to_le_bytes())))
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(super) fn text(&mut self, room: usize) -> Result<String, Malformed> {
        let field = self.bytes(room)?;
        let end = field.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        String::from_utf8(field[..end].to_vec()).map_err(|_| Malformed)
    }

    pub(super) fn index<T: Copy>(&mut self, values: &[T]) -> Result<T, Malformed> {
        let index = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        values.get(index).copied().ok_or(Malformed)
    }

    pub(super) fn list<T>(
        &mut self,
        most: usize,
        read: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let length =
            usize::try_from(self.number()?).ok().filter(|length| *length <= most).ok_or(Malformed)?;
        (0..length).map(|_| read(self)).collect()
    }

    pub(super) fn set<T: Copy>(&mut self, values: &[T]) -> Result<Vec<T>, Malformed> {
        let bits = self.number()?;
        if bits >> values.len() != 0 {
            return Err(Malformed);
        }
        let member = |(i, v): (usize, &T)| (bits >> i & 1 == 1).then_some(*v);
        Ok(values.iter().enumerate().filter_map(member).collect())
    }

    /// The rest must be zero, so that a message means one thing only.
    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.rest.iter().all(|b| *b == 0) { Ok(()) } else { Err(Malformed) }
    }
}
