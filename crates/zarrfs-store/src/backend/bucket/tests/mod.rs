//! Buckets behind a network that fails: what is read, and what is written; conditions of removals; keys that are gone; rotated
//! credentials; which server a bucket is on.

mod failed_reads;
mod faulty_server;
mod gone;
mod lost_answers;
mod named_server;
mod removals;
mod rotated;
