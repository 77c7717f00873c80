//! The names of the files in the folders of authorities and nodes.

/// File of the CA certificates, in the folder of the authority and in the folder of each node.
pub const CA_CERTIFICATE_FILE: &str = "ca.pem";

/// File of the authority's private key. It never leaves the authority's folder.
pub const CA_KEY_FILE: &str = "ca.key";

/// File of the certificate chain in a node's folder.
pub const CERTIFICATE_FILE: &str = "cert.pem";

/// File of the private key in a node's folder.
pub const KEY_FILE: &str = "key.pem";
