//! Buckets behind a network that fails: what is read, and what is written; conditions of removals; keys that are gone; rotated
//! credentials.

mod failed_reads;
mod faulty_server;
mod gone;
mod lost_answers;
mod removals;
mod rotated;
