//! `cargo +nightly fuzz run wire`: what peers send, guided by coverage.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../conversation.rs"]
mod conversation;

fuzz_target!(|bytes: &[u8]| conversation::hold(bytes));
