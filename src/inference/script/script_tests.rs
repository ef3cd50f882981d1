//! The script wire.
