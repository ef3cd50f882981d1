//! Tools that a model asks for: at once, in order, within their limits, and only those that it may have.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use serde_json::json;

use crate::world::{ModelServer, RealShop, Said, Wire};

fn calls(names: &[&str]) -> Said {
    Said::Calls(names.iter().map(|name| ((*name).to_owned(), json!({}))).collect())
}

fn three_tools_run_at_once(wire: Wire) {
    let model =
        ModelServer::start(wire, |asked| if asked.number == 0 { calls(&["first", "second", "third"]) } else { Said::text("All done.") });
    let Some(shop) = RealShop::open(&model) else { return };
    // Each opens a pipe that only another opens at its other end: one after another, none would ever end. The first
    // ends last.
    for pipe in ["one", "two", "three"] {
        shop.world.pipe(pipe);
    }
    shop.world.tool("first", "pure", "10s", "echo go > one; cat three; echo of the first");
    shop.world.tool("second", "pure", "10s", "cat one; echo go > two; echo of the second");
    shop.world.tool("third", "pure", "10s", "cat two; echo go > three; echo of the third");
    shop.world.grant(&["first", "second", "third"]);
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("three", "Look three things up."));
    assert!(shop.wait_for_answers(1)[0].text.contains("All done."));
    assert!(daemon.terminate().success());

    let found = shop.world.rows("SELECT name, position, round, status, result FROM audit_tool_calls ORDER BY round, position", |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, String>(3)?, row.get::<_, String>(4)?))
    });
    let names: Vec<_> = found.iter().map(|(name, position, ..)| (name.as_str(), *position)).collect();
    assert_eq!(names, [("first", 0), ("second", 1), ("third", 2)]);
    assert!(found.iter().all(|(_, _, round, status, _)| *round == found[0].2 && status == "completed"), "{found:?}");

    let shown = model.asked()[1].everything();
    let place = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text}: {shown}"));
    assert!(place("of the first") < place("of the second") && place("of the second") < place("of the third"));
}

#[test]
fn harness_t1_three_tools_of_one_response_run_at_once_and_answer_in_call_order_over_the_openai_wire() {
    three_tools_run_at_once(Wire::Openai);
}

#[test]
fn harness_t1_three_tools_of_one_response_run_at_once_and_answer_in_call_order_over_the_anthropic_wire() {
    three_tools_run_at_once(Wire::Anthropic);
}

#[test]
fn harness_t9_a_tool_that_is_not_granted_or_switched_off_is_refused_when_it_is_called() {
    let model = ModelServer::start(Wire::Openai, |asked| match asked.number {
        0 => calls(&["vault", "oven", "freezer", "no_such_tool"]),
        _ => Said::text("I looked only where I may."),
    });
    let Some(shop) = RealShop::open(&model) else { return };
    for name in ["vault", "oven", "freezer"] {
        shop.world.tool(name, "pure", "5s", &format!("echo ran >> {name}.ran; echo opened"));
    }
    shop.world.grant(&["oven", "freezer"]);
    let daemon = shop.world.start();
    shop.world.done(&["switch", "off", "tool:oven"]);
    shop.hand_in(&shop.letter("curious", "Look everywhere."));
    assert!(shop.wait_for_answers(1)[0].text.contains("I looked only where I may."));
    assert!(daemon.terminate().success());

    let statuses: Vec<_> = shop.world.tool_calls().into_iter().map(|(name, status, _)| (name, status)).collect();
    let expected = [("vault", "refused"), ("oven", "refused"), ("freezer", "completed"), ("no_such_tool", "refused")];
    assert_eq!(statuses, expected.map(|(name, status)| (name.to_owned(), status.to_owned())));
    assert_eq!(["vault", "oven", "freezer"].map(|name| shop.world.read(&format!("{name}.ran")).lines().count()), [0, 0, 1]);
    let offered = model.asked()[0].body["tools"].to_string();
    assert!(offered.contains("freezer") && !offered.contains("vault"), "{offered}");
}

#[test]
fn a_tool_that_is_switched_off_in_mid_run_stops_at_once() {
    let (reached, in_mid_run) = channel();
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let model = ModelServer::start(Wire::Openai, move |asked| match asked.number {
        0 => calls(&["stamp"]),
        1 => {
            reached.send(()).expect("the test waits for this");
            released.lock().unwrap().recv().expect("the test goes on");
            calls(&["stamp"])
        }
        _ => Said::text("Stamped once."),
    });
    let Some(shop) = RealShop::open(&model) else { return };
    shop.world.tool("stamp", "effectful", "5s", "echo stamped >> stamps; echo stamped");
    shop.world.grant(&["stamp"]);
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("stamps", "Stamp it twice.").judged("pass"));
    in_mid_run.recv().unwrap();
    shop.world.done(&["switch", "off", "tool:stamp"]);
    release.send(()).unwrap();
    shop.wait_for_answers(1);
    assert!(daemon.terminate().success());

    let statuses: Vec<_> = shop.world.tool_calls().into_iter().map(|(_, status, _)| status).collect();
    assert_eq!(statuses, ["completed", "refused"]);
    assert_eq!(shop.world.read("stamps").lines().count(), 1);
}

#[test]
fn tools_that_fail_hang_or_return_far_too_much_leave_a_good_answer() {
    let model = ModelServer::start(Wire::Anthropic, |asked| match asked.number {
        0 => calls(&["failing", "hanging", "flooding"]),
        _ => Said::text("A good answer all the same."),
    });
    let Some(shop) = RealShop::open(&model) else { return };
    shop.world.tool("failing", "pure", "5s", "echo the register is closed >&2; exit 7");
    shop.world.tool("hanging", "pure", "1s", "sleep 600");
    shop.world.tool("flooding", "pure", "5s", "head -c 5000000 /dev/zero | tr '\\0' x");
    shop.world.grant(&["failing", "hanging", "flooding"]);
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("bad-tools", "Try it all."));
    assert!(shop.wait_for_answers(1)[0].text.contains("A good answer all the same."));
    assert!(daemon.terminate().success());

    let calls = shop.world.tool_calls();
    let statuses: Vec<_> = calls.iter().map(|(name, status, _)| (name.as_str(), status.as_str())).collect();
    assert_eq!(statuses, [("failing", "failed"), ("hanging", "failed"), ("flooding", "completed")]);
    assert!(calls[0].2.contains("the register is closed") && calls[1].2.contains("1"), "{:?}", &calls[..2]);
    assert!(calls[2].2.len() <= 102_400 && calls[2].2.contains("xxxx"), "{} bytes", calls[2].2.len());
    assert!(model.asked()[1].everything().len() < 150_000);
    assert_eq!(shop.world.rows("SELECT outcome FROM audit_runs", |row| row.get::<_, String>(0)), ["answered"]);
}

/// A model that never stops asking for tools, unless it may not.
fn never_stops(wire: Wire, most: usize) {
    let model = ModelServer::start(wire, |asked| if asked.is_closing() { Said::text("That is all I found.") } else { calls(&["freezer"]) });
    let Some(shop) = RealShop::open(&model) else { return };
    shop.world.edit("agents/sundae.toml", "model = ", &format!("max_tool_turns = {most}\nmodel = "));
    shop.world.tool("freezer", "pure", "5s", "echo seven tubs");
    shop.world.grant(&["freezer"]);
    let daemon = shop.world.start();
    shop.hand_in(&shop.letter("endless", "Look and look."));
    assert!(shop.wait_for_answers(1)[0].text.contains("That is all I found."));
    assert!(daemon.terminate().success());

    let closing: Vec<bool> = model.asked().iter().map(crate::world::Asked::is_closing).collect();
    assert_eq!(closing, [vec![false; most], vec![true]].concat(), "so many rounds, then one closing call");
    assert_eq!(shop.world.tool_calls().len(), most);
    let run = shop.world.rows("SELECT rounds, outcome FROM audit_runs", |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)));
    assert_eq!(run, [(i64::try_from(most).unwrap(), "limit_reached".to_owned())]);
}

#[test]
fn harness_l1_a_model_that_never_stops_has_one_round_and_a_closing_call() {
    never_stops(Wire::Openai, 1);
}

#[test]
fn harness_l1_a_model_that_never_stops_has_two_rounds_and_a_closing_call() {
    never_stops(Wire::Anthropic, 2);
}

#[test]
fn harness_l1_a_model_that_never_stops_has_eight_rounds_and_a_closing_call() {
    never_stops(Wire::Openai, 8);
}
