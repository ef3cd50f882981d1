//! The two programs' settings: a home with five eager tools for the daemon, arguments for the bare loop.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::bare_loop;
use super::model::Model;
use super::program::Program;
use super::servers::Servers;

/// Above anything that a measurement sends.
const LIMITS: &str = "replies_per_thread_per_hour = 100000\nreplies_per_thread_per_day = 100000\nreplies_per_sender_per_hour = 100000\n\
                      replies_per_domain_per_hour = 100000\nreplies_per_day = 100000\n";

const TOOLS: &str = r#"
[tools.order_status]
description = "Looks up one order of the customer who wrote: its state, when it is due, what is in it"
command = ["true"]
effect = "pure"
input = { type = "object", properties = { order = { type = "string", description = "The order number, digits only" } }, required = ["order"] }

[tools.stock]
description = "How much there is of one flavour today"
command = ["true"]
effect = "pure"
input = { type = "object", properties = { flavour = { type = "string" }, shop = { type = "string", enum = ["harbour", "station"] } }, required = ["flavour"] }

[tools.place_order]
description = "Orders tubs for the customer who wrote"
command = ["true"]
effect = "effectful"
input = { type = "object", properties = { flavour = { type = "string" }, tubs = { type = "integer", minimum = 1, maximum = 20 }, day = { type = "string", description = "As 2026-12-24" } }, required = ["flavour", "tubs", "day"] }

[tools.redeem_points]
description = "Redeems loyalty points: 50 for a free scoop, 200 for a free tub"
command = ["true"]
effect = "effectful"
input = { type = "object", properties = { reward = { type = "string", enum = ["scoop", "tub"] } }, required = ["reward"] }
"#;

const AGENT: &str = "description = \"Answers customers\"\nmailbox = \"shop\"\nmodel = \"scripted\"\n\
                     prompt = \"You are Sundae, who answers the letters of an ice cream shop. Be brief and friendly.\"\n\
                     display_name = \"Sundae\"\nfallback_reply = \"A person will answer you soon.\"\n\
                     [tools]\neager = [\"order_status\", \"stock\", \"place_order\", \"redeem_points\", \"escalate\"]\n\
                     [context]\nreactive = [\"persona\", \"clock\", \"history\"]\n";

/// Where a program runs, and how it is started.
pub struct Home {
    folder: TempDir,
    /// The mailbox that the program watches.
    pub address: String,
    command: Box<dyn Fn() -> Command>,
    name: &'static str,
}

impl Home {
    /// The daemon on a mailbox of its own.
    pub fn daemon(name: &'static str, servers: &Servers, model: &Model, more: &Settings<'_>) -> Home {
        let address = servers.address("agent");
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir_all(home.join("agents")).unwrap();
        let settings = format!(
            "[mailboxes.shop]\naddress = \"{address}\"\nagent = \"sundae\"\nreceive = \"imaps://localhost:{}\"\n\
             send = \"submissions://localhost:{}\"\nusername = \"{address}\"\npassword = {{ file = \"password\" }}\nca_file = \"{}\"\n{}\n\
             [models.scripted]\nwire = \"openai\"\nbase_url = \"{}\"\nmodel = \"scripted-1\"\napi_key = {{ file = \"model-key\" }}\n\
             context_window = 100000\nmax_output = 4096\n{TOOLS}\n[operator]\naddress = \"owner@shop.example\"\n\n\
             [limits]\nconcurrent_runs = {}\n{LIMITS}",
            servers.port("IMAPS"),
            servers.port("SUBMISSIONS"),
            servers.ca_file(),
            more.mailbox,
            model.base_url(),
            more.concurrent_runs,
        );
        fs::write(home.join("dutiful.toml"), settings).unwrap();
        fs::write(home.join("agents/sundae.toml"), AGENT).unwrap();
        for (file, text) in [("password", "secret\n"), ("model-key", "bench-key\n")] {
            fs::write(home.join(file), text).unwrap();
            fs::set_permissions(home.join(file), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let command = move || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_dutiful"));
            command.arg("--home").arg(&home).arg("serve");
            command
        };
        Home { folder, address, command: Box::new(command), name }
    }

    /// The bare loop on a mailbox of its own.
    pub fn bare(servers: &Servers, model: &Model) -> Home {
        let address = servers.address("bare");
        let words = [
            bare_loop::WORD.to_owned(),
            address.clone(),
            servers.port("IMAPS").to_string(),
            servers.port("SUBMISSIONS").to_string(),
            servers.ca_file().to_owned(),
            model.base_url(),
        ];
        let command = move || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(&words);
            command
        };
        Home { folder: tempfile::tempdir().unwrap(), address, command: Box::new(command), name: "bare loop" }
    }

    /// Starts the program and waits until it watches.
    #[track_caller]
    pub fn start(&self) -> Program {
        Program::start(self.name, (self.command)(), self.folder())
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// What a daemon's measurements differ in.
pub struct Settings<'a> {
    /// `[limits] concurrent_runs`.
    pub concurrent_runs: u32,
    /// More lines for the mailbox.
    pub mailbox: &'a str,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Settings { concurrent_runs: 16, mailbox: "" }
    }
}
