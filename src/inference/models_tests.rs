//! Attempts, failover and prices, over the script wire: no network, paused time.

use std::io::Write as _;
use std::sync::Mutex;

use super::*;
use crate::chat::Source;
use crate::inference::fixtures::{request, settings, user};

/// A model that answers by these rules.
fn backend(name: &str, rules: &str) -> Arc<Backend> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(rules.as_bytes()).unwrap();
    let mut model = settings(Wire::Script, "http://127.0.0.1");
    model.name = name.into();
    model.rules = Some(file.path().to_owned());
    let price = Price { input: 1_000_000, output: 2_000_000, cache_read: 0, cache_write: 0 };
    let provider = Box::new(ScriptProvider::open(&model).unwrap());
    Arc::new(Backend { name: name.into(), provider, context_window: 1000, max_output: 100, price, chance: || 1.0 })
}

fn model(backends: &[(&str, &str)]) -> Model {
    let mut backends: Vec<_> = backends.iter().map(|(name, rules)| backend(name, rules)).collect();
    Model { own: backends.remove(0), fallbacks: backends }
}

async fn ask(model: &Model) -> Result<Completed, ModelError> {
    model.complete(&request(vec![user("hello")]), &|_| {}).await.map_err(|unanswered| unanswered.error)
}

const WELL: &str = "[[rule]]\ntext = 'all is well'";

fn failing(status: u16) -> String {
    format!("[[rule]]\nerror = {status}")
}

fn author(completed: &Completed) -> &str {
    match &completed.reply.message {
        crate::chat::Message::Assistant { origin, .. } => &origin.provider,
        _ => panic!("an assistant message"),
    }
}

#[tokio::test(start_paused = true)]
async fn harness_f3_five_attempts_with_growing_waits_then_the_error() {
    let begun = Instant::now();
    let error = ask(&model(&[("a", &failing(503))])).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ErrorKind::Server, Some(503)));
    assert_eq!(begun.elapsed().as_secs(), 1 + 2 + 4 + 8);
}

#[tokio::test(start_paused = true)]
async fn harness_f2_an_error_of_our_own_is_said_at_once() {
    let begun = Instant::now();
    assert_eq!(ask(&model(&[("a", &failing(400)), ("b", WELL)])).await.unwrap_err().kind, ErrorKind::InvalidRequest);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn harness_f7_the_fallback_answers_when_a_model_stays_unavailable() {
    let completed = ask(&model(&[("a", &failing(529)), ("b", &failing(401)), ("c", WELL)])).await.unwrap();
    assert_eq!(author(&completed), "c");
    assert_eq!(completed.attempts, 5 + 1 + 1);
}

#[tokio::test(start_paused = true)]
async fn harness_s5_a_refusal_goes_to_the_fallback_once_and_stands_if_that_fails() {
    let refusing = "[[rule]]\ntext = 'no'\nfinish = 'refusal'";
    let answered = ask(&model(&[("a", refusing), ("b", WELL)])).await.unwrap();
    assert_eq!(author(&answered), "b");
    let stands = ask(&model(&[("a", refusing), ("b", &failing(401))])).await.unwrap();
    assert_eq!((author(&stands), stands.reply.stop.clone(), stands.attempts), ("a", StopReason::Refusal, 2));
    let both = ask(&model(&[("a", refusing), ("b", refusing), ("c", WELL)])).await.unwrap();
    assert_eq!(author(&both), "b", "once only");
}

#[tokio::test]
async fn harness_u3_a_refused_answer_is_billed_too() {
    let refusing = "[[rule]]\ntext = 'no'\nfinish = 'refusal'";
    let alone = ask(&model(&[("a", WELL)])).await.unwrap();
    let both = ask(&model(&[("a", refusing), ("b", WELL)])).await.unwrap();
    // Five tokens in, one token out: 5 + 2.
    assert_eq!(both.cost, alone.cost + 7);
}

#[tokio::test(start_paused = true)]
async fn harness_u3_a_call_without_an_answer_says_its_attempts_and_what_they_cost() {
    let refusing = model(&[("a", &failing(503)), ("b", &failing(401))]);
    let unanswered = refusing.complete(&request(vec![user("hello")]), &|_| {}).await.unwrap_err();
    assert_eq!((unanswered.error.kind, unanswered.attempts, unanswered.cost), (ErrorKind::Auth, 6, 0), "nothing came, nothing is billed");
}

#[test]
fn harness_u4_cost_is_rounded_up_to_millionths() {
    let price = Price { input: 600_000, output: 2_500_000, cache_read: 150_000, cache_write: 0 };
    let usage = Usage { input: 1, cache_read: 10, output: 2, ..Usage::default() };
    assert_eq!(cost(&price, &usage), 8, "0.6 + 1.5 + 5 = 7.1");
    assert_eq!(cost(&price, &Usage::default()), 0);
    let huge = Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() };
    assert_eq!(cost(&Price { input: u64::MAX, output: u64::MAX, cache_read: 0, cache_write: 0 }, &huge), u64::MAX);
}

#[tokio::test]
async fn a_watcher_sees_each_event_and_the_output_limit_is_the_models_own() {
    let seen = Mutex::new(Vec::new());
    let watch = |event: &ModelEvent| seen.lock().unwrap().push(event.clone());
    model(&[("a", WELL)]).complete(&request(vec![crate::chat::Message::user("hi", Source::Customer)]), &watch).await.unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(matches!(seen.first(), Some(ModelEvent::Started { .. })));
    assert!(matches!(seen.last(), Some(ModelEvent::Finished { .. })));
}

/// A provider on loopback that cuts its first answers and gives the next one whole.
async fn cutting_server(tasks: &mut tokio::task::JoinSet<()>, cuts: usize) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let chunk = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let mut answers = vec![format!("{head}{}", chunk("half")); cuts];
    answers.push(format!("{head}{}{stop}", chunk("whole")));
    tasks.spawn(async move {
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}}") {
                assert_ne!(socket.read_buf(&mut request).await.unwrap(), 0);
            }
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    base
}

/// The model at such a provider; it never waits between attempts.
async fn cut_model(tasks: &mut tokio::task::JoinSet<()>, cuts: usize) -> Model {
    let base = cutting_server(tasks, cuts).await;
    let tls = crate::tls::client_config(None).unwrap();
    let provider = HttpProvider::new(Dialect::Openai, &settings(Wire::Openai, &base), &tls, Limits::default()).unwrap();
    let price = Price { input: 1_000_000, output: 1_000_000, cache_read: 0, cache_write: 0 };
    let provider: Box<dyn Provider> = Box::new(provider);
    let own = Arc::new(Backend { name: "p".into(), provider, context_window: 1000, max_output: 100, price, chance: || 0.0 });
    Model { own, fallbacks: Vec::new() }
}

#[tokio::test]
async fn harness_u3_cut_answers_are_billed_also_when_no_whole_one_comes() {
    let mut tasks = tokio::task::JoinSet::new();
    let model = cut_model(&mut tasks, 5).await;
    let unanswered = model.complete(&request(vec![user("hello")]), &|_| {}).await.unwrap_err();
    assert_eq!((unanswered.error.kind, unanswered.attempts, unanswered.cost), (ErrorKind::Network, 5, 5 * (5 + 1)));
}

#[tokio::test]
async fn harness_f4_a_cut_answer_is_dropped_and_asked_for_again() {
    let mut tasks = tokio::task::JoinSet::new();
    let completed = ask(&cut_model(&mut tasks, 1).await).await.unwrap();
    assert_eq!(completed.reply.message.text(), "whole");
    assert_eq!(completed.attempts, 2);
    // Five tokens in and one or two out, each time: the cut attempt is billed as well (harness U3).
    assert_eq!(completed.cost, (5 + 1) + (5 + 2));
}
