//! Dutiful: a daemon that lets AI agents work by email.
//!
//! The parts in reading order, each with what it must not know; arrows point downward only and
//! `tests/layers.rs` checks it.
//!
//! - [`mail`] — a letter as plain values. Knows no I/O.
//! - [`chat`] — the normalized conversation. Knows no vendor.
//! - [`clock`], [`random`] — the one reader of the wall clock, the one source of randomness.
//! - [`process`] — starting a program. The only spawner.
//! - [`tls`] — one TLS client configuration for every connection.
//! - [`config`] — TOML in, checked values out. The only reader of TOML and the environment.
//! - [`run`] — what every part of one run shares. Knows no mail protocol, no model.
//! - [`events`] — what happened. Knows nobody who listens.
//! - [`store`] — SQLite. The only one who says SQL.
//! - [`inference`] — one model call. The only one who knows a vendor's JSON.
//! - [`tools`] — what a model may call. Knows no harness.
//! - [`context`] — the resolver chain. Knows no front door.
//! - [`harness`] — the loop. Knows neither mail nor cron.
//! - [`frontdoor`] — where a run begins and how its outcome leaves. The only one who knows a letter and a run.
//! - [`gateway`] — mail in, mail out. Knows no harness, no tool, no model.
//! - [`telemetry`] — logs. Knows no personal data at INFO.
//! - [`daemon`] — builds all, spawns all, stops all.
//! - [`cli`] — commands.

pub mod chat;
pub mod cli;
pub mod clock;
pub mod config;
pub mod context;
pub mod daemon;
pub mod events;
pub mod frontdoor;
pub mod gateway;
pub mod harness;
pub mod inference;
pub mod mail;
pub mod process;
pub mod random;
pub mod run;
pub mod store;
pub mod telemetry;
pub mod tls;
pub mod tools;
