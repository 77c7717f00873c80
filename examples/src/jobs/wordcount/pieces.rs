//! Many short byte strings in one allocation.

/// Byte strings one after another; cleared and filled again without a new allocation.
#[derive(Debug, Default)]
pub struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pieces {
    /// Without any.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        self.ends.push(self.bytes.len());
    }

    /// Removes all and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Bytes of all together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, &end)| &self.bytes[start..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_as_they_were_added() {
        let mut pieces = Pieces::new();
        for piece in ["ab", "", "c"] {
            pieces.push(piece.as_bytes());
        }
        assert_eq!(pieces.iter().collect::<Vec<_>>(), [&b"ab"[..], b"", b"c"]);
        assert_eq!(pieces.bytes(), 3);
        pieces.clear();
        assert!(pieces.is_empty());
        assert_eq!(pieces.iter().count(), 0);
    }
}
