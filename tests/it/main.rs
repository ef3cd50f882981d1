//! The end-to-end suite: the real program in a home of its own, with real mail servers and a scripted model at the wire.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a panic here is a failed test, and these tests start programs"
)]

mod answers_mail;
mod answers_on_real_servers;
mod commands;
mod edits_held_letters;
mod ends_runs;
mod ends_with_the_store;
mod keeps_customers_apart;
mod keeps_secrets;
mod keeps_the_mailbox_in_order;
mod obeys_the_operator;
mod recovers_at_every_commit;
mod refuses_machines;
mod runs_tools;
mod shop;
mod survives_kills;
mod survives_outages;
mod survives_restart;
mod world;
mod world_holds;
