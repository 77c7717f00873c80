//! What TLS alerts of a peer mean for the connection.

/// What the peer says with this alert of RFC 8446 section 6; `None` for one that needs its name only.
pub(crate) fn words(alert: u8) -> Option<&'static str> {
    Some(match alert {
        40 => "the peer found no cipher suite or signature scheme in common",
        42 => "the peer refused our certificate: it is bad",
        43 => "the peer refused our certificate: its type is not supported",
        44 => "the peer refused our certificate: it is revoked",
        45 => "the peer refused our certificate: it has expired or is not valid yet",
        46 => "the peer refused our certificate",
        48 => "the peer refused our certificate: it does not trust the authority that signed it",
        49 => "the peer refused our certificate: access denied",
        51 => "the peer refused our certificate: its signature does not verify",
        70 => "the peer found no TLS version in common",
        116 => "the peer refused us: we sent no certificate and it requires one",
        NO_APPLICATION_PROTOCOL => "no application protocol in common (ours is thalweg/1)",
        _ => return None,
    })
}

/// Sent by a side that finds no protocol in common.
pub(crate) const NO_APPLICATION_PROTOCOL: u8 = 120;
