//! The `dutiful` program.

fn main() {}
