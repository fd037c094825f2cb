//! libFuzzer's entry to the target of the same name.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelog_fuzz::decode_frame(data));
