//! Tests of buckets: failing networks, conditions, removed keys, rotated credentials, server names.

mod failed_reads;
mod faulty_server;
mod gone;
mod lost_answers;
mod named_server;
mod removals;
mod rotated;
