//! The one source of randomness: the operating system's (harness DR1, security S5). Ids, delimiters and
//! jitter are made from it.

/// Random bytes.
///
/// # Panics
/// When the operating system has none, which on Linux is only ever so before it has booted: ids that can be
/// guessed would be worse than a daemon that ends.
#[expect(clippy::disallowed_methods, reason = "the one source of randomness")]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if let Err(error) = getrandom::fill(&mut bytes) {
        panic!("the operating system gives no randomness: {error}");
    }
    bytes
}
