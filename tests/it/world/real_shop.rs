//! The shop on real mail servers, with a customer, alice, and its operator.

use super::{Account, Arrived, Letter, MailServers, Maildir, ModelServer, World};

/// Whose `Authentication-Results` the shop believes.
pub const TRUSTED_RECEIVER: &str = "mx.example.test";

/// A home whose mailbox is an account on real servers.
pub struct RealShop {
    /// The servers.
    pub servers: MailServers,
    /// The home.
    pub world: World,
    /// The shop's account.
    pub agent: Account,
    /// A customer's account.
    pub alice: Account,
}

impl RealShop {
    /// On the shared servers; none when the suite runs without them.
    pub fn open(model: &ModelServer) -> Option<RealShop> {
        MailServers::shared().map(|servers| RealShop::on(servers, model))
    }

    /// On servers of its own, which may be stopped.
    pub fn open_with_own_servers(model: &ModelServer) -> Option<RealShop> {
        MailServers::own().map(|servers| RealShop::on(servers, model))
    }

    fn on(servers: MailServers, model: &ModelServer) -> RealShop {
        let (agent, alice) = (servers.account("agent"), servers.account("alice"));
        let world = World::on_servers(model, &servers, &agent);
        RealShop { servers, world, agent, alice }
    }

    /// A letter from alice to the shop.
    pub fn letter(&self, id: &str, text: &str) -> Letter {
        Letter::new(&self.alice.address(), &self.agent.address(), &format!("{id}@alice.example"), text)
    }

    /// Hands a letter in as alice's server does.
    pub fn hand_in(&self, letter: &Letter) {
        self.servers.send(&self.alice.address(), &self.agent.address(), &letter.to_string());
    }

    /// What alice has got, once it is so much.
    #[track_caller]
    pub fn wait_for_answers(&self, count: usize) -> Vec<Arrived> {
        self.servers.inbox(&self.alice).wait_for(count)
    }

    /// What lies in alice's mailbox now.
    pub fn answers(&self) -> Vec<Arrived> {
        self.servers.inbox(&self.alice).letters()
    }

    /// The operator's mailbox.
    pub fn operator(&self) -> Maildir {
        self.servers.inbox_of(&World::operator_of(&self.agent))
    }
}
