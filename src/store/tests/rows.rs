//! The audit views and the lists made of them.

use super::*;

#[tokio::test]
async fn the_views_have_the_columns_of_the_contract() {
    let place = Place::new();
    drop(place.open());
    let expected = [
        ("audit_letters", "id, mailbox, agent, message_id, sender, identity, subject, received_at, verdict, reason, thread_id, run_id"),
        (
            "audit_runs",
            "id, parent_id, door, agent, thread_id, letter_id, firing_id, status, outcome, model, rounds, input_tokens, \
             output_tokens, cost, started_at, ended_at, error",
        ),
        ("audit_tool_calls", "run_id, round, position, name, arguments, result, status, started_at, ended_at"),
        ("audit_outgoing", "id, run_id, thread_id, kind, recipient, subject, message_id, status, attempts, queued_at, sent_at, error"),
        ("audit_firings", "id, duty, due_at, claimed_at, run_id, status, reason"),
        ("audit_questions", "id, run_id, kind, asked_of, questions, status, asked_at, expires_at, answer, answered_by, answered_at"),
        ("audit_events", "seq, at, run_id, kind, data"),
    ];
    let sql = place.sql();
    for (view, columns) in expected {
        let mut info = sql.prepare("SELECT group_concat(name, ', ') FROM pragma_table_info(?1)").unwrap();
        let found: String = info.query_row([view], |row| row.get(0)).unwrap();
        assert_eq!(found, columns, "{view}");
    }
}

#[tokio::test]
async fn rows_have_the_keys_of_their_view_and_obey_every_filter() {
    let place = Place::new();
    let store = place.open();
    let (run, letter, thread) = running(&store, 1).await;
    store.append(&run, vec![noted("a needle")]).await.unwrap();
    running(&store, 2).await;
    let count = |view, filter: Filter| store.rows(view, &filter).unwrap().len();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(count(View::Letters, Filter::default()), 2);
    assert_eq!(count(View::Letters, Filter { id: Some(letter.to_string()), ..Filter::default() }), 1);
    assert_eq!(count(View::Letters, Filter { id: some("1 OR 1=1"), ..Filter::default() }), 0);
    assert_eq!(count(View::Letters, Filter { sender: some("ALICE1@example.com"), status: some("accepted"), ..Filter::default() }), 1);
    assert_eq!(count(View::Letters, Filter { text: some("cone"), agent: some("sundae"), ..Filter::default() }), 2);
    assert_eq!(count(View::Letters, Filter { text: some("%"), ..Filter::default() }), 0);
    assert_eq!(count(View::Runs, Filter { text: some("NEEDLE"), door: some("reactive"), ..Filter::default() }), 1);
    assert_eq!(count(View::Runs, Filter { sender: some("alice2@example.com"), thread: Some(2), ..Filter::default() }), 1);
    assert_eq!(count(View::Runs, Filter { since: Some(noon() + chrono::Duration::days(1)), ..Filter::default() }), 0);
    assert_eq!(count(View::Events, Filter { run: some("r1"), ..Filter::default() }), 1);
    assert_eq!(count(View::ToolCalls, Filter { agent: some("sundae"), ..Filter::default() }), 0);
    let newest = store.rows(View::Letters, &Filter { limit: Some(1), ..Filter::default() }).unwrap();
    assert_eq!((newest.len(), &newest[0]["id"]), (1, &serde_json::json!(2)));
    assert_eq!(newest[0].keys().next().unwrap(), "id");
    assert_eq!(newest[0]["run_id"], "r2");
    let threads = store.rows(View::Threads, &Filter { thread: Some(thread.0), ..Filter::default() }).unwrap();
    let keys: Vec<&String> = threads[0].keys().collect();
    assert_eq!(keys, ["id", "agent", "mailbox", "subject", "status", "reason", "participants", "letters", "created_at", "last_at"]);
    assert_eq!(threads[0]["participants"], "alice1@example.com");
}

#[tokio::test]
async fn every_view_takes_each_filter_that_it_has_and_refuses_the_others_by_name() {
    let place = Place::new();
    let store = place.open();
    let some = || Some("x".to_owned());
    let filters = [
        Filter { id: some(), ..Filter::default() },
        Filter { run: some(), ..Filter::default() },
        Filter { agent: some(), ..Filter::default() },
        Filter { door: some(), ..Filter::default() },
        Filter { status: some(), ..Filter::default() },
        Filter { sender: some(), ..Filter::default() },
        Filter { thread: Some(1), ..Filter::default() },
        Filter { duty: some(), ..Filter::default() },
        Filter { since: Some(noon()), ..Filter::default() },
        Filter { text: some(), ..Filter::default() },
        Filter { limit: Some(1), ..Filter::default() },
    ];
    let views = [View::Letters, View::Runs, View::ToolCalls, View::Outgoing, View::Firings, View::Questions, View::Events, View::Threads];
    for view in views {
        for filter in &filters {
            match store.rows(view, filter) {
                Ok(rows) => assert!(rows.is_empty()),
                Err(StoreError::Fault(text)) => assert!(text.starts_with("this list cannot be narrowed by"), "{view:?}: {text}"),
                Err(other) => panic!("{view:?}: {other}"),
            }
        }
    }
}

#[tokio::test]
async fn the_views_alone_say_which_letters_were_not_answered_and_why() {
    let place = Place::new();
    let store = place.open();
    let ignored =
        Delivery { verdict: Verdict::Ignored, reason: "out of office".to_owned(), ..delivery("bob@example.com", ThreadChoice::None) };
    store.receive(incoming(1, "bob@example.com"), accept(ignored)).await.unwrap();
    let empty = Delivery { verdict: Verdict::Held, reason: String::new(), ..delivery("eve@example.com", NEW) };
    store.receive(incoming(2, "eve@example.com"), accept(empty)).await.unwrap();
    let (run, ..) = running(&store, 3).await;
    let failed = Close {
        status: crate::run::RunStatus::Failed,
        outcome: crate::run::Outcome::Failed,
        error: Some("no model".to_owned()),
        ..super::runs::done()
    };
    store.close_run(&run, vec![], failed, vec![], None).await.unwrap();
    let (run, ..) = running(&store, 4).await;
    store.close_run(&run, vec![], super::runs::done(), vec![], None).await.unwrap();
    let why = place.text(
        "SELECT group_concat(l.sender || ': ' || l.reason, '; ' ORDER BY l.id) FROM audit_letters l
         LEFT JOIN audit_runs r ON r.id = l.run_id
         WHERE l.received_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 day') AND coalesce(r.outcome, 'failed') = 'failed'",
    );
    assert_eq!(why, "bob@example.com: out of office; eve@example.com: held; alice3@example.com: failed: no model");
    assert_eq!(place.number("SELECT count(*) FROM audit_events WHERE kind IN ('run.failed', 'run.completed')"), 2);
}
