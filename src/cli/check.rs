//! `check`: loads and validates everything, names every problem and every weak choice.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::home::Home;
use super::print;
use super::runs::runtime;
use crate::chat::{Message, Source};
use crate::config::{Config, Receive, Send, ServerAddress};
use crate::inference::{Models, Request, ToolChoice};
use crate::{gateway, tls};

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Also log in to each server and ask each model for one token.
    #[arg(long)]
    online: bool,
    /// Print every limit with its value.
    #[arg(long)]
    limits: bool,
}

impl Check {
    pub(super) fn run(self, home: &Home) -> anyhow::Result<ExitCode> {
        let config = match home.config() {
            Ok(config) => config,
            Err(problems) => {
                for problem in &problems {
                    print::line(&problem.to_string());
                }
                print::remark(&format!("{} problem(s) in {}", problems.len(), home.folder().display()));
                return Ok(ExitCode::FAILURE);
            }
        };
        for warning in &config.warnings {
            print::line(&format!("warning: {warning}"));
        }
        if self.limits {
            for (name, value) in config.settings.limits.rows() {
                print::line(&format!("{name:30} {value}"));
            }
        }
        let failed = if self.online { online(&config)? } else { 0 };
        if failed > 0 {
            print::remark(&format!("{failed} connection(s) failed"));
            return Ok(ExitCode::FAILURE);
        }
        print::line(&format!(
            "ok: {} mailbox(es), {} agent(s), {} model(s), {} warning(s)",
            config.settings.mailboxes.len(),
            config.agents.len(),
            config.settings.models.len(),
            config.warnings.len()
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// Tries every server and every model; gives the number of failures.
fn online(config: &Config) -> anyhow::Result<usize> {
    let runtime = runtime()?;
    let mut failed = 0;
    let mut told = |what: String, result: anyhow::Result<()>| match result {
        Ok(()) => print::line(&format!("{what}: ok")),
        Err(error) => {
            failed += 1;
            let text = format!("{error:#}");
            print::line(&format!("{what}: {}{}", print::visible(&text), way_out(&text)));
        }
    };
    for mailbox in config.settings.mailboxes.values() {
        let tls = match tls::client_config(mailbox.ca.as_deref()) {
            Ok(tls) => Arc::new(tls),
            Err(error) => {
                told(format!("mailbox {}, ca_file", mailbox.name), Err(error));
                continue;
            }
        };
        let receiving = runtime.block_on(gateway::try_receiving(mailbox, &config.home, &tls));
        told(format!("mailbox {}, receiving from {}", mailbox.name, origin(&mailbox.receive)), receiving);
        let sending = runtime.block_on(gateway::try_sending(mailbox, &config.home, &tls));
        told(format!("mailbox {}, sending to {}", mailbox.name, destination(&mailbox.send)), sending);
    }
    let models = Models::build(&config.settings, &tls::client_config(None)?)?;
    let request = Request {
        system: String::new(),
        messages: vec![Message::user("Say: ok", Source::Operator)],
        tools: Vec::new(),
        tool_choice: ToolChoice::None,
        max_output: 1,
    };
    for name in config.settings.models.keys() {
        let Some(model) = models.get(name) else { continue };
        let answered = runtime.block_on(model.complete(&request, &|_| {}));
        told(format!("model {name}"), answered.map(drop).map_err(Into::into));
    }
    Ok(failed)
}

fn origin(receive: &Receive) -> String {
    match receive {
        Receive::Imap(server) => at(server),
        Receive::Maildir(path) => path.display().to_string(),
    }
}

fn destination(send: &Send) -> String {
    match send {
        Send::Smtp(server) => at(server),
        Send::Sendmail(path) | Send::Maildir(path) => path.display().to_string(),
    }
}

fn at(server: &ServerAddress) -> String {
    format!("{}:{}", server.host, server.port)
}

/// What an operator can do about the commonest failures, by the words that TLS and the resolver use for them.
fn way_out(error: &str) -> &'static str {
    const WAYS: [(&str, &str); 5] = [
        ("UnknownIssuer", "; if you trust this server, name its authority's certificate in ca_file"),
        ("not valid for name", "; write the host as its certificate names it"),
        ("NotValidForName", "; write the host as its certificate names it"),
        ("InvalidContentType", "; no TLS is spoken on this port: imap:// and submission:// use STARTTLS"),
        ("lookup address", "; correct the host's name"),
    ];
    WAYS.iter().find(|(words, _)| error.contains(words)).map_or("", |(_, way)| way)
}
