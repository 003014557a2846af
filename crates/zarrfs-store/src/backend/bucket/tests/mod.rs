//! Tests of buckets whose servers fail, are emptied, refuse conditions or rotate their keys.

mod credentials;
mod faulty_server;
mod reads;
mod writes;
