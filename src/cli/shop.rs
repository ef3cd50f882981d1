//! The shipped shop, inside the binary: what `demo` runs and `init` starts from.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;

/// A shipped file: where it goes in a home, its text, and whether it is a program.
struct Shipped {
    path: &'static str,
    text: &'static str,
    program: bool,
}

macro_rules! shipped {
    ($($path:literal from $source:literal $($program:ident)?),+ $(,)?) => {
        [$(Shipped { path: $path, text: include_str!(concat!("../../", $source)), program: shipped!(@ $($program)?) }),+]
    };
    (@ program) => { true };
    (@) => { false };
}

const FILES: [Shipped; 14] = shipped![
    "agents/sundae.toml" from "agents/sundae.toml",
    "agents/scout.toml" from "agents/scout.toml",
    "rules.toml" from "deploy/shop/rules.toml",
    "knowledge/menu.md" from "deploy/shop/knowledge/menu.md",
    "knowledge/customers.csv" from "deploy/shop/knowledge/customers.csv",
    "knowledge/orders.csv" from "deploy/shop/knowledge/orders.csv",
    "knowledge/sales.csv" from "deploy/shop/knowledge/sales.csv",
    "bin/json-field" from "deploy/shop/bin/json-field" program,
    "bin/order-status" from "deploy/shop/bin/order-status" program,
    "bin/redeem-points" from "deploy/shop/bin/redeem-points" program,
    "letters/flavours.eml" from "deploy/shop/letters/flavours.eml",
    "letters/free-tub.eml" from "deploy/shop/letters/free-tub.eml",
    "letters/not-my-order.eml" from "deploy/shop/letters/not-my-order.eml",
    "letters/out-of-office.eml" from "deploy/shop/letters/out-of-office.eml",
];

/// The letter that the demo sends itself: it needs the customer's record and a tool.
pub(super) const LETTER: &str = include_str!("../../deploy/shop/letters/order.eml");

/// What stands in its Message-ID before the @.
pub(super) const LETTER_ID: &str = "order-1042-question";

/// The demo's settings.
pub(super) const DEMO_SETTINGS: &str = include_str!("../../deploy/shop/dutiful.toml");

/// The settings that `init` writes: the same shop, with every key that a real mailbox needs explained.
pub(super) const HOME_SETTINGS: &str = include_str!("../../deploy/home.toml");

/// Writes the shop into a folder. Files that exist are left as they are.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn write(home: &Path, settings: &str) -> anyhow::Result<()> {
    for file in &FILES {
        write_new(&home.join(file.path), file.text, if file.program { 0o755 } else { 0o644 })?;
    }
    write_new(&home.join("letters/order.eml"), LETTER, 0o644)?;
    fs::create_dir_all(home.join("duties"))?;
    // No secret stands in it, and a service runs as another user than the one who wrote it.
    write_new(&home.join("dutiful.toml"), settings, 0o644)
}

fn write_new(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    if path.exists() {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}
