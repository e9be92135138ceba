//! Bad input: a clear error, nothing run, and the next command works.

mod commands;
mod frames;
mod framing;
mod http;
mod peers;

fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}
