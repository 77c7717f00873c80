//! The introduction on a connection's first stream.
//!
//! The opener of the connection writes its hello after the two bytes that name the stream; the other side answers on
//! the same stream with its own. Each finishes its half of the stream after its hello. Integers are big-endian.
//!
//! ```text
//!  0      4         5         6          8                16            20          24
//! +--------+---------+---------+----------+----------------+-------------+-----------+--------+----+--------+---------+-----+
//! | "THLW" | version | version | body     | feature bits   | buffer size | max frame | id     | id | cluster| cluster | ... |
//! |        | min u8  | max u8  | len u16  | u64            | u32         | u32       | len u8 |    | len u8 |         |     |
//! +--------+---------+---------+----------+----------------+-------------+-----------+--------+----+--------+---------+-----+
//!                                          '------------------- body ------------------------------------------------------'
//! ```
//!
//! A newer minor version appends to the body; an older reader skips what it does not know by the body's length. A
//! cluster length of 0 stands for none.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::{
    error::ErrorCode,
    identity::{MAX_RESOURCE_ID_BYTES, ResourceId},
};

/// What a node says of itself at the start of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Lowest and highest minor version that it speaks.
    pub versions: Versions,
    /// Optional abilities, one bit each; unknown bits are kept. The upper 16 are the transport's own.
    pub features: u64,
    /// Bytes of its full data frames, header included ([`TransportConfig::buffer_size`](crate::TransportConfig)).
    pub buffer_size: u32,
    /// Bytes of the largest frame of any kind that it accepts.
    pub max_frame: u32,
    /// Its name: a claim, to be compared with what its certificate proves.
    pub id: ResourceId,
    /// Its cluster, of the same alphabet and length as a resource id.
    pub cluster: Option<Arc<str>>,
}

impl Hello {
    /// The bytes that go onto the stream after kind and stream version.
    ///
    /// # Errors
    /// [`HelloError::Cluster`] if the cluster's name has another alphabet or length than documented.
    pub fn encode(&self) -> Result<Bytes, HelloError> {
        let cluster = self.cluster.as_deref().unwrap_or_default();
        if self.cluster.is_some() && ResourceId::new(cluster).is_err() {
            return Err(HelloError::Cluster);
        }
        let id = self.id.as_str();
        let body = FIXED_BODY_BYTES + 1 + id.len() + 1 + cluster.len();
        let short = |len: usize| u8::try_from(len).expect("names have at most 128 bytes");
        let mut out = BytesMut::with_capacity(HEAD_BYTES + body);
        out.put_slice(&MAGIC);
        out.put_u8(self.versions.min);
        out.put_u8(self.versions.max);
        out.put_u16(u16::try_from(body).expect("two names of at most 128 bytes"));
        out.put_u64(self.features);
        out.put_u32(self.buffer_size);
        out.put_u32(self.max_frame);
        out.put_u8(short(id.len()));
        out.put_slice(id.as_bytes());
        out.put_u8(short(cluster.len()));
        out.put_slice(cluster.as_bytes());
        Ok(out.freeze())
    }

    /// Reads a hello from the first bytes of a stream: `None` while bytes are missing, else the hello and how many
    /// bytes it took.
    ///
    /// A caller never has to keep more than [`MAX_HELLO_BYTES`]. Wrong bytes are refused as soon as they are there.
    ///
    /// # Errors
    /// Any [`HelloError`] but [`HelloError::WrongCluster`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, HelloError> {
        let seen = bytes.len().min(MAGIC.len());
        if bytes[..seen] != MAGIC[..seen] {
            return Err(HelloError::BadMagic);
        }
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let versions = Versions {
            min: head[4],
            max: head[5],
        };
        Versions::SUPPORTED.common(versions)?;
        let len = usize::from(u16::from_be_bytes([head[6], head[7]]));
        if len > MAX_BODY_BYTES {
            return Err(HelloError::TooLong { bytes: len });
        }
        let Some(body) = rest.get(..len) else {
            return Ok(None);
        };
        let mut body = Body(body);
        let features = u64::from_be_bytes(body.array()?);
        let buffer_size = u32::from_be_bytes(body.array()?);
        let max_frame = u32::from_be_bytes(body.array()?);
        let id = body.name()?.ok_or(HelloError::ResourceId)?;
        let id = ResourceId::new(id).map_err(|_| HelloError::ResourceId)?;
        let cluster = match body.name()? {
            Some(name) if ResourceId::new(name).is_ok() => Some(name.into()),
            Some(_) => return Err(HelloError::Cluster),
            None => None,
        };
        if buffer_size == 0 || max_frame < buffer_size {
            return Err(HelloError::Limits {
                buffer_size,
                max_frame,
            });
        }
        let hello = Self {
            versions,
            features,
            buffer_size,
            max_frame,
            id,
            cluster,
        };
        Ok(Some((hello, HEAD_BYTES + len)))
    }

    /// What holds on a connection between two nodes that said this; the same on both sides.
    ///
    /// # Errors
    /// [`HelloError::VersionMismatch`] without a common version, [`HelloError::WrongCluster`] if both name a cluster
    /// and not the same.
    pub fn agree(&self, theirs: &Self) -> Result<Agreement, HelloError> {
        let version = self.versions.common(theirs.versions)?;
        if let (Some(ours), Some(other)) = (&self.cluster, &theirs.cluster)
            && ours != other
        {
            return Err(HelloError::WrongCluster {
                ours: ours.clone(),
                theirs: other.clone(),
            });
        }
        Ok(Agreement {
            version,
            features: self.features & theirs.features,
            peer_buffer_size: theirs.buffer_size,
            peer_max_frame: theirs.max_frame,
        })
    }
}

/// A range of minor versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// Lowest; 0 is never used.
    pub min: u8,
    /// Highest.
    pub max: u8,
}

impl Versions {
    /// What this build speaks.
    pub const SUPPORTED: Self = Self { min: 1, max: 1 };

    /// The highest version of both ranges.
    fn common(self, theirs: Self) -> Result<u8, HelloError> {
        let version = self.max.min(theirs.max);
        if theirs.min <= theirs.max && version >= self.min.max(theirs.min) {
            Ok(version)
        } else {
            Err(HelloError::VersionMismatch { ours: self, theirs })
        }
    }
}

/// What two nodes agreed upon, and the limits that the peer stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Agreement {
    /// The minor version.
    pub version: u8,
    /// The features of both.
    pub features: u64,
    /// Bytes of the peer's full data frames, header included.
    pub peer_buffer_size: u32,
    /// Bytes of the largest frame that the peer accepts.
    pub peer_max_frame: u32,
}

/// Why a hello is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The first bytes are not those of a hello.
    #[error("hello without the magic bytes")]
    BadMagic,
    /// The cluster's name is malformed.
    #[error("hello with a cluster name that is no word of 1 to {MAX_RESOURCE_ID_BYTES} bytes")]
    Cluster,
    /// The frame sizes contradict each other.
    #[error("hello with a buffer of {buffer_size} bytes and frames of at most {max_frame}")]
    Limits {
        /// The stated buffer size.
        buffer_size: u32,
        /// The stated largest frame.
        max_frame: u32,
    },
    /// The resource id is malformed or missing.
    #[error("hello with a resource id that is no word of 1 to {MAX_RESOURCE_ID_BYTES} bytes")]
    ResourceId,
    /// The body is longer than any version may make it.
    #[error("hello of {bytes} bytes where {MAX_BODY_BYTES} are allowed")]
    TooLong {
        /// The stated length.
        bytes: usize,
    },
    /// The body ends in the middle of a field.
    #[error("hello whose body ends in the middle of a field")]
    Truncated,
    /// No common version.
    #[error(
        "no common protocol version: here {} to {}, there {} to {}",
        ours.min, ours.max, theirs.min, theirs.max
    )]
    VersionMismatch {
        /// What we speak.
        ours: Versions,
        /// What the peer speaks.
        theirs: Versions,
    },
    /// The peer belongs to another cluster.
    #[error("the peer belongs to cluster {theirs}, this node to {ours}")]
    WrongCluster {
        /// Our cluster.
        ours: Arc<str>,
        /// The cluster that the peer names.
        theirs: Arc<str>,
    },
}

impl HelloError {
    /// The code that the peer hears.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::VersionMismatch { .. } => ErrorCode::VERSION_MISMATCH,
            Self::WrongCluster { .. } => ErrorCode::WRONG_CLUSTER,
            _ => ErrorCode::PROTOCOL,
        }
    }
}

struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], HelloError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(HelloError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A text with its length before it, or `None` if the length is 0.
    fn name(&mut self) -> Result<Option<&'a str>, HelloError> {
        let [len] = self.array()?;
        if len == 0 {
            return Ok(None);
        }
        let (name, rest) = self
            .0
            .split_at_checked(usize::from(len))
            .ok_or(HelloError::Truncated)?;
        self.0 = rest;
        // Names that are no UTF-8 fail the check of their alphabet like any other bad name.
        Ok(Some(std::str::from_utf8(name).unwrap_or("\u{fffd}")))
    }
}

/// The node can decompress LZ4 blocks in buffers of partitions.
pub const FEATURE_LZ4: u64 = 1 << 48;

/// The bits of the transport's own abilities.
pub(crate) const OWN_FEATURE_BITS: u64 = 0xffff << 48;

/// The abilities of this build.
pub(crate) const OWN_FEATURES: u64 = if cfg!(feature = "lz4") {
    FEATURE_LZ4
} else {
    0
};

/// Most bytes of a hello of any version.
pub const MAX_HELLO_BYTES: usize = HEAD_BYTES + MAX_BODY_BYTES;

/// Three times what this version can fill, so that later versions can append.
const MAX_BODY_BYTES: usize = 1024;
const HEAD_BYTES: usize = 8;
const FIXED_BODY_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"THLW";

#[cfg(test)]
mod tests;
