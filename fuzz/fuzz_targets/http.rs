#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| larder_fuzz::http(input));
