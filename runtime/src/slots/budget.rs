//! An amount of memory that is given out in parts.

use thiserror::Error;

/// Memory in bytes of which parts are reserved; their sum never exceeds the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    total: u64,
    reserved: u64,
}

/// More memory was asked for than is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{asked} bytes are asked for, {free} of {total} are free")]
pub struct OverBudget {
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes not reserved.
    pub free: u64,
    /// Bytes of the budget.
    pub total: u64,
}

impl MemoryBudget {
    /// A budget of which nothing is reserved.
    #[must_use]
    pub const fn new(total: u64) -> Self {
        Self { total, reserved: 0 }
    }

    /// Takes a part.
    ///
    /// # Errors
    /// [`OverBudget`] if less is free; nothing is reserved then.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), OverBudget> {
        if bytes > self.free() {
            return Err(OverBudget {
                asked: bytes,
                free: self.free(),
                total: self.total,
            });
        }
        self.reserved += bytes;
        Ok(())
    }

    /// Gives a part back; more than is reserved counts as all of it.
    pub fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// Bytes not reserved.
    #[must_use]
    pub const fn free(self) -> u64 {
        self.total - self.reserved
    }

    /// Bytes of the budget.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_total_is_given_out() {
        let mut budget = MemoryBudget::new(10);
        budget.reserve(7).unwrap();
        let over = OverBudget {
            asked: 4,
            free: 3,
            total: 10,
        };
        assert_eq!(budget.reserve(4), Err(over));
        assert_eq!(
            budget.reserve(u64::MAX).unwrap_err().asked,
            u64::MAX,
            "no overflow"
        );
        budget.reserve(3).unwrap();
        budget.release(10);
        assert_eq!(budget.free(), 10);
        budget.release(1);
        assert_eq!(budget.free(), 10);
    }
}
