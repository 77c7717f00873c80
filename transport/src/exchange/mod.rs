//! Result partitions, input gates and the buffers between them.
