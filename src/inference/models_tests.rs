//! Attempts, failover and prices.
