//! Buckets behind a network that fails: what is read, and what is written; conditions of removals; and rotated
//! credentials.

mod failed_reads;
mod faulty_server;
mod lost_answers;
mod removals;
mod rotated;
