//! Addresses that others dial.

use std::net::Ipv6Addr;

/// `host`, `host:port` or `[IPv6]:port`; names are resolved when they are dialled.
pub(super) fn is_address(text: &str, port_needed: bool) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        // Colons in the host are an IPv6 address, which stands in brackets or has no port.
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    };
    let port_valid = match port {
        Some(port) => port.parse::<u16>().is_ok_and(|port| port > 0),
        None => !port_needed,
    };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host_valid = match bare {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None if host.contains(':') => host.parse::<Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.len() <= MAX_HOST_BYTES
                && host
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        }
    };
    port_valid && host_valid
}

/// Longest DNS name.
const MAX_HOST_BYTES: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_brackets_are_told_apart() {
        for text in ["h:1", "10.0.0.1:6120", "[::1]:6121", "tm-1.example:65535"] {
            assert!(is_address(text, true), "{text}");
        }
        for text in ["h", "::1", "[::1]", "tm-1.example"] {
            assert!(is_address(text, false) && !is_address(text, true), "{text}");
        }
        for text in [
            "", ":1", "h:", "h:0", "h:65536", "a b:1", "[::1:1", "a:b:1", "[x]:1", "h/x:1",
        ] {
            assert!(!is_address(text, false), "{text}");
        }
    }
}
