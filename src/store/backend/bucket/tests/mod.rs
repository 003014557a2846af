//! Buckets behind a network that fails: what is read, and what is written.

mod faulty_server;
mod lost_answers;
