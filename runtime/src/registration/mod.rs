//! Registration of one endpoint at another, with retries.
