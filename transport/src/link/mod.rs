//! One connection per ConnectionId, shared and counted.
