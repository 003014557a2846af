//! Buckets behind a network that fails: what is read, and what is written; and conditions of removals.

mod faulty_server;
mod lost_answers;
mod removals;
