//! TCP with rustls, many streams on one connection.
