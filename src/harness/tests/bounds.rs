//! How often the model is asked, and which text a run comes to.

use super::*;
use crate::config::OnLimit;
use crate::store::ReplySource;

fn looking(setting: &mut Setting) {
    tool(setting, "look", Effect::Pure, "echo found");
}

fn source(finish: &Finish) -> ReplySource {
    finish.steps.iter().find_map(|step| if let Step::ReplyReady { source, .. } = step { Some(*source) } else { None }).unwrap()
}

/// A model that answers by these rules, in the process itself.
fn by_rules(setting: &mut Setting, rules: &str) {
    let path = setting.settings.home.join("rules.toml");
    std::fs::write(&path, rules).unwrap();
    let model = setting.settings.models.get_mut("kimi").unwrap();
    (model.wire, model.rules) = (Wire::Script, Some(path));
}

#[tokio::test]
async fn harness_l2_a_model_that_never_stops_gets_its_rounds_and_one_closing_call() {
    for rounds in [1_u32, 2, 8] {
        let many = usize::try_from(rounds).unwrap();
        let mut said: Vec<Said> = (0..rounds).map(|_| calls(&["look"])).collect();
        said.push(text("It comes on Monday."));
        let world = World::new(said, |setting| {
            looking(setting);
            setting.agent.max_tool_turns = rounds;
        })
        .await;
        let finish = world.finish().await;
        assert_eq!(
            (finish.body.as_str(), finish.close.outcome, finish.close.rounds),
            ("It comes on Monday.", Outcome::LimitReached, rounds)
        );
        assert_eq!(source(&finish), ReplySource::Closing);
        let requests = world.model.requests();
        assert_eq!(requests.len(), many + 1);
        let (last, before) = requests.split_last().unwrap();
        assert_eq!(last["tool_choice"], "none");
        assert!(last_message(last).1.contains("No further tool use is possible"));
        assert!(before.iter().all(|request| request["tool_choice"] != "none"));
        assert_eq!(world.results().await.len(), many);
    }
}

#[tokio::test]
async fn harness_l1_an_answer_before_the_limit_needs_no_closing_call() {
    let world = World::new(vec![calls(&["look"]), text("On Monday.")], looking).await;
    let finish = world.finish().await;
    assert_eq!((finish.body.as_str(), finish.close.outcome, finish.close.rounds), ("On Monday.", Outcome::Answered, 1));
    assert_eq!(finish.close.usage.output, 10);
    assert_eq!(finish.close.cost, 2 * (10 + 2 * 5));
}

#[tokio::test]
async fn harness_l2_return_last_sends_the_last_text_as_it_is_and_asks_no_more() {
    let world = World::new(vec![Said::Both("Let me look.", vec!["look"])], |setting| {
        looking(setting);
        setting.agent.max_tool_turns = 2;
        setting.agent.on_limit = OnLimit::ReturnLast;
    })
    .await;
    let finish = world.finish().await;
    assert_eq!((finish.body.as_str(), finish.close.outcome, finish.close.rounds), ("Let me look.", Outcome::LimitReached, 2));
    assert_eq!(world.model.requests().len(), 2);
}

#[tokio::test]
async fn harness_l3_a_closing_call_that_calls_again_is_repeated_once_then_the_fallback() {
    let world = World::new(vec![Said::Both("One more look.", vec!["look"])], |setting| {
        looking(setting);
        setting.agent.max_tool_turns = 1;
    })
    .await;
    let finish = world.finish().await;
    assert_eq!(
        (finish.body.as_str(), finish.close.outcome),
        ("A colleague will write to you.", Outcome::Fallback),
        "a preamble is no reply"
    );
    assert_eq!(world.model.requests().len(), 3, "a round, a closing call, its repetition");
    assert_eq!(world.results().await.len(), 1, "no call of the closing call ran");
}

#[tokio::test]
async fn harness_l7_the_text_beside_calls_is_no_part_of_the_reply() {
    let world = World::new(vec![Said::Both("Let me look.", vec!["look"]), text("On Monday.")], looking).await;
    assert_eq!(world.finish().await.body, "On Monday.");
}

#[tokio::test]
async fn harness_e1_an_empty_answer_is_asked_for_again_then_nudged_then_replaced() {
    let world = World::new(vec![text("  \n")], same).await;
    let finish = world.finish().await;
    assert_eq!((finish.body.as_str(), finish.close.outcome), ("A colleague will write to you.", Outcome::Fallback));
    let requests = world.model.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0], requests[1], "unchanged");
    assert!(last_message(&requests[2]).1.contains("Your last answer was empty"));
}

#[tokio::test]
async fn harness_e1_the_nudge_is_not_kept() {
    let world = World::new(vec![text(""), text(""), calls(&["look"]), text("On Monday.")], looking).await;
    assert_eq!(world.finish().await.body, "On Monday.");
    let last = world.model.requests().pop().unwrap();
    assert!(!last.to_string().contains("Your last answer was empty"));
}

#[tokio::test]
async fn harness_s8_a_cut_tool_call_never_runs_and_a_second_one_closes_the_tools() {
    let cut = Said::Calls(vec![("look".to_owned(), "{}".to_owned())], "length");
    let world = World::new(vec![cut.clone(), cut, text("I could not look.")], looking).await;
    let finish = world.finish().await;
    assert_eq!((finish.body.as_str(), finish.close.outcome), ("I could not look.", Outcome::LimitReached));
    assert!(world.results().await.is_empty());
    let requests = world.model.requests();
    assert!(last_message(&requests[1]).1.contains("cut off at the output limit"));
    assert_eq!(requests[2]["tool_choice"], "none");
}

#[tokio::test]
async fn harness_s5_a_refusal_is_never_mailed_as_an_answer_and_runs_nothing() {
    for refusal in
        [Said::Text("I must not".to_owned(), "content_filter"), Said::Calls(vec![("look".into(), "{}".into())], "content_filter")]
    {
        let world = World::new(vec![refusal], looking).await;
        let finish = world.finish().await;
        assert_eq!((finish.body.as_str(), finish.close.outcome), ("A colleague will write to you.", Outcome::Refused));
        assert_eq!(finish.close.error.as_deref(), Some("the model refused"));
        assert!(world.results().await.is_empty());
    }
}

#[tokio::test]
async fn harness_s5_an_answer_that_a_filter_took_is_a_refusal() {
    let filtered = Said::Error(400, "{\"error\":{\"code\":\"content_filter\",\"message\":\"filtered\"}}");
    let world = World::new(vec![filtered], same).await;
    let finish = world.finish().await;
    assert_eq!((finish.body.as_str(), finish.close.outcome), ("A colleague will write to you.", Outcome::Refused));
}

#[tokio::test]
async fn harness_s6_a_pause_gets_its_content_back_three_times_and_is_then_an_end() {
    let pause = |turn: u32| format!("[[rule]]\nmatch = {{ turn = {turn} }}\ntext = 'part {turn}'\nfinish = 'pause_turn'\n");
    let ending = format!("{}{}[[rule]]\ntext = 'The end.'\n", pause(0), pause(1));
    let endless: String = (0..9).map(pause).collect();
    for (rules, body, asked) in [(ending, "The end.", 3), (endless, "part 3", 4)] {
        let world = World::new(vec![Said::Silence], |setting| by_rules(setting, &rules)).await;
        let finish = world.finish().await;
        assert_eq!((finish.body.as_str(), finish.close.outcome), (body, Outcome::Answered));
        assert_eq!(world.steps().await.iter().filter(|step| matches!(step, Step::ModelRequested { .. })).count(), asked);
    }
}

#[tokio::test]
async fn harness_l5_calls_beyond_a_round_or_a_run_get_an_error_and_do_not_run() {
    let world = World::new(vec![calls(&["mark", "mark", "mark"]), calls(&["mark", "mark"]), text("Done.")], |setting| {
        tool(setting, "mark", Effect::Effectful, "echo x >> marks");
        setting.settings.limits.tool_calls_per_round = 2;
        setting.settings.limits.tool_calls_per_run = 4;
    })
    .await;
    assert_eq!(world.finish().await.body, "Done.");
    let results = world.results().await;
    let skipped: Vec<&str> = results.iter().filter(|(status, _)| *status == ToolStatus::Skipped).map(|(_, text)| text.as_str()).collect();
    assert_eq!(skipped, ["not run: too many calls in one turn; at most 2 run", "not run: too many calls in this run; at most 4 run"]);
    assert_eq!(world.lines("marks").len(), 3);
    assert_eq!(tool_messages(&world.model.requests()[2]).len(), 5, "each call has its result");
}

#[tokio::test]
async fn harness_l6_a_call_that_fails_the_same_way_is_noticed_then_closed() {
    let mut said = vec![calls(&["broken"]); 4];
    said.push(text("I cannot see it."));
    let world = World::new(said, |setting| tool(setting, "broken", Effect::Pure, "echo no >&2; exit 1")).await;
    let finish = world.finish().await;
    assert_eq!((finish.body.as_str(), finish.close.outcome, finish.close.rounds), ("I cannot see it.", Outcome::LimitReached, 4));
    let requests = world.model.requests();
    let noticed: Vec<bool> = requests.iter().map(|request| last_message(request).1.contains("failed the same way")).collect();
    assert_eq!(noticed, [false, false, false, true, false]);
    assert_eq!(requests[4]["tool_choice"], "none");
}

#[tokio::test]
async fn harness_l6_three_rounds_of_invalid_calls_are_noticed_whatever_they_say() {
    let mut said: Vec<Said> = (0..4).map(|n| Said::Calls(vec![("look".into(), format!("{{\"wrong\": {n}}}"))], "tool_calls")).collect();
    said.push(text("I cannot."));
    let world = World::new(said, looking).await;
    let finish = world.finish().await;
    assert_eq!((finish.body.as_str(), finish.close.rounds), ("I cannot.", 4), "rounds of repair count too (R11)");
    let requests = world.model.requests();
    assert!(last_message(&requests[3]).1.contains("failed the same way"));
    assert_eq!(requests[4]["tool_choice"], "none");
}

#[tokio::test]
async fn harness_l6_a_success_between_failures_starts_the_count_anew() {
    let mut said = vec![calls(&["broken"]), calls(&["broken"]), calls(&["look"]), calls(&["broken"]), calls(&["broken"])];
    said.push(text("Well."));
    let world = World::new(said, |setting| {
        looking(setting);
        tool(setting, "broken", Effect::Pure, "exit 1");
    })
    .await;
    assert_eq!(world.finish().await.close.outcome, Outcome::Answered);
}

#[tokio::test]
async fn harness_l5_the_tokens_of_a_run_are_bounded() {
    let world = World::new(vec![calls(&["look"]), text("That is all.")], |setting| {
        looking(setting);
        setting.agent.budget.run_tokens = Some(15);
    })
    .await;
    let finish = world.finish().await;
    assert_eq!((finish.body.as_str(), finish.close.outcome, finish.close.rounds), ("That is all.", Outcome::LimitReached, 1));
}

#[tokio::test]
async fn harness_l5_when_the_time_is_over_a_closing_call_is_left() {
    let world = World::new(vec![text("In short: Monday.")], |setting| {
        looking(setting);
        setting.settings.limits.run_time = Duration::ZERO;
    })
    .await;
    let finish = world.finish().await;
    assert_eq!((finish.body.as_str(), finish.close.outcome), ("In short: Monday.", Outcome::LimitReached));
    assert_eq!(world.model.requests()[0]["tool_choice"], "none");
}

#[tokio::test(start_paused = true)]
async fn harness_l5_a_round_that_takes_all_the_time_leaves_a_last_word_and_then_the_fallback() {
    let rules = "[[rule]]\nmatch = { last = 'never' }\ntext = 'x'\n[[rule]]\nmatch = { closing = true }\ntext = 'Short.'\n[[rule]]\ntext = 'Long.'\ndelay = '60m'\n";
    for (rules, body, outcome) in [
        (rules.to_owned(), "Short.", Outcome::LimitReached),
        (rules.replace("text = 'Short.'", "text = 'Short.'\ndelay = '60m'"), "A colleague will write to you.", Outcome::Fallback),
    ] {
        let world = World::new(vec![Said::Silence], |setting| {
            by_rules(setting, &rules);
        })
        .await;
        let finish = world.finish().await;
        assert_eq!((finish.body.as_str(), finish.close.outcome), (body, outcome));
    }
}

#[tokio::test]
async fn harness_ts1_tools_and_system_are_the_same_bytes_in_every_request() {
    let mut said = vec![calls(&["look"]), text(""), calls(&["look", "nothing"]), calls(&["look"])];
    said.push(text("On Monday."));
    let world = World::new(said, |setting| {
        looking(setting);
        setting.agent.max_tool_turns = 3;
    })
    .await;
    assert_eq!(world.finish().await.close.outcome, Outcome::LimitReached);
    let requests = world.model.requests();
    assert_eq!(requests.len(), 5);
    let front = |request: &Value| (request["tools"].to_string(), request["messages"][0].to_string());
    assert!(!front(&requests[0]).0.is_empty());
    for pair in requests.windows(2) {
        assert_eq!(front(&pair[0]), front(&pair[1]));
        // What was said stays as it was said (PC1): only helper notes at the very end come and go.
        let (before, after) = (pair[0]["messages"].as_array().unwrap(), pair[1]["messages"].as_array().unwrap());
        let common = before.iter().zip(after).take_while(|(a, b)| a == b).count();
        assert!(common + 1 >= before.len(), "{common} of {}", before.len());
    }
}
