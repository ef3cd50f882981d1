use proptest::prelude::*;

use super::*;
use crate::gateway::parse::ParseCaps;
use Authentication::{Fail, FailNonePolicy, None as Nothing, Pass};

fn judge(fields: &str, trusted: &[&str]) -> Authentication {
    let raw = format!("{fields}From: alice@example.com\n\n");
    let (headers, _) = Headers::scan(raw.as_bytes(), &ParseCaps::default()).unwrap();
    let trusted: Vec<String> = trusted.iter().map(|id| (*id).to_owned()).collect();
    authentication(&headers, &"alice@example.com".parse().unwrap(), &trusted)
}

/// One field by mx.shop.example with these results.
fn field(results: &str) -> String {
    format!("Authentication-Results: mx.shop.example; {results}\n")
}

#[test]
fn security_s1_what_the_receiver_says_is_understood() {
    for (results, wanted) in [
        ("dmarc=pass header.from=example.com", Pass),
        ("dmarc=pass (p=REJECT sp=REJECT dis=NONE) header.from=Example.COM", Pass),
        ("spf=fail smtp.mailfrom=x@y; dmarc=pass header.from=example.com", Pass),
        ("dkim=pass header.d=example.com", Pass),
        ("dkim=pass header.i=@example.com header.s=k header.b=ab/c+d==", Pass),
        ("dkim=pass (2048-bit key; unprotected) header.d=example.com header.i=@example.com header.b=\"a;b=\"", Pass),
        ("dkim=pass header.d=mail.example.com", Pass),
        ("dkim=fail header.d=example.com; dkim=pass header.d=example.com", Pass),
        ("dmarc=none header.from=example.com; dkim=pass header.d=example.com", Pass),
        ("dmarc = pass header.from = example.com", Pass),
        ("dkim/1=pass header.d=example.com", Pass),
        ("DMARC=Pass HEADER.FROM=example.com;", Pass),
        ("dmarc=pass reason=\"ok; dmarc=fail\" header.from=example.com", Pass),
        ("spf=pass smtp.mailfrom=\"a;b (c)\"@other.example; dkim=pass header.d=example.com", Pass),
        ("(a (nested; dmarc=fail) comment) dmarc=pass (x\\)y) header.from=example.com", Pass),
        ("dmarc=fail header.from=example.com", Fail),
        ("dmarc=fail (p=reject dis=none) header.from=example.com; dkim=pass header.d=example.com", Fail),
        ("dmarc=fail (p=none dis=quarantine) header.from=example.com", Fail),
        ("dmarc=fail (p=NONE sp=NONE dis=NONE) header.from=example.com", FailNonePolicy),
        ("dmarc=fail policy.published-domain-policy=none header.from=example.com", FailNonePolicy),
        ("dmarc=fail action=none header.from=example.com", FailNonePolicy),
    ] {
        assert_eq!(judge(&field(results), &["mx.shop.example"]), wanted, "{results}");
    }
}

#[test]
fn security_s1_what_only_looks_like_a_pass_is_none() {
    for results in [
        "none",
        "",
        "spf=pass smtp.mailfrom=example.com",
        "spf=fail (dkim=pass header.d=example.com)",
        "spf=fail (dmarc=pass header.from=example.com",
        "spf=fail reason=\"dmarc=pass header.from=example.com\"",
        "spf=fail reason=\"x; dmarc=pass header.from=example.com",
        "dmarc=pass header.from=evil.example",
        "dmarc=pass",
        "dmarc=passed header.from=example.com",
        "dmarc=bestguesspass header.from=example.com",
        "dkim=pass header.d=evil.example",
        "dkim=pass header.d=notexample.com",
        "dkim=pass header.d=com",
        "dkim=pass header.i=@evil.example header.d=evil.example",
        "dkim=pass header.d=evil.example header.i=@example.com",
        "dkim=pass header.d=example.com.evil.example",
        "dkim=fail (bad signature) header.d=example.com",
        "x-dkim=pass header.d=example.com",
        "dkim-adsp=pass header.d=example.com",
        "spf=pass smtp.mailfrom=\"a; dmarc=pass header.from=example.com\"@evil.example",
        "dkim=none; x=y dkim=pass header.d=example.com",
        "arc=pass header.d=example.com",
    ] {
        assert_eq!(judge(&field(results), &["mx.shop.example"]), Nothing, "{results}");
    }
}

#[test]
fn email_i1_security_s1_only_the_trusted_block_speaks() {
    let pass = "dmarc=pass header.from=example.com";
    let trusted = field(pass);
    let foreign = format!("Authentication-Results: mx.evil.example; {pass}\n");
    let received = "Received: from mx.evil.example by mx.shop.example; Mon, 2 Nov 2026 10:00:00 +0000\n";
    let ids = &["mx.shop.example"][..];
    for (what, fields, trusted_ids, wanted) in [
        ("nobody is trusted", trusted.clone(), &[][..], Nothing),
        ("another server", foreign.clone(), ids, Nothing),
        ("case of the id", field(pass).replace("mx.shop", "MX.Shop"), ids, Pass),
        ("a quoted id", field(pass).replace("mx.shop.example", "\"mx.shop.example\""), ids, Pass),
        ("a version", field(pass).replace("example;", "example 1;"), ids, Pass),
        ("a longer id", field(pass).replace("mx.shop.example", "mx.shop.example.evil.example"), ids, Nothing),
        ("an id in a comment", field(pass).replace("mx.shop.example", "(mx.shop.example) mx.evil.example"), ids, Nothing),
        ("a folded field", field(pass).replace("; ", ";\n\t"), ids, Pass),
        ("a folded id", format!("Authentication-Results:\n mx.shop.example;\n {pass}\n"), ids, Pass),
        ("field name in capitals", field(pass).to_uppercase().replace("EXAMPLE.COM", "example.com"), ids, Pass),
        ("two fields of one server", format!("{}{}", field("dkim=none"), trusted), ids, Pass),
        ("filters write between", format!("{}DKIM-Filter: OpenDKIM v2\n{}", field("spf=none"), trusted), ids, Pass),
        ("forged below a hop", format!("{}{received}{trusted}", field("dmarc=none; dkim=none")), ids, Nothing),
        ("forged below a fail", format!("{}{trusted}", field("dmarc=fail header.from=example.com")), ids, Fail),
        ("forged below a none", format!("{}{trusted}", field("dmarc=none")), ids, Nothing),
        ("forged below another server's", format!("{}{foreign}{trusted}", field("spf=none")), ids, Nothing),
        ("a broken field is silent", field("dmarc=pass header.from=example.com; ???"), ids, Nothing),
        ("a wildcard", field(pass).replace("mx.shop.example", "mx5.messagingengine.com"), &["*.messagingengine.com"][..], Pass),
        (
            "not below the wildcard",
            field(pass).replace("mx.shop.example", "evilmessagingengine.com"),
            &["*.messagingengine.com"][..],
            Nothing,
        ),
        ("the wildcard's own name", field(pass).replace("mx.shop.example", "messagingengine.com"), &["*.messagingengine.com"][..], Nothing),
    ] {
        assert_eq!(judge(&fields, trusted_ids), wanted, "{what}: {fields}");
    }
}

#[test]
fn security_s1_microsoft_writes_no_id() {
    let inner = "Received: from AM0.eurprd.prod.outlook.com by DB7.eurprd.prod.outlook.com with HTTPS; x\n";
    let edge = "Received: from mail.example.com (192.0.2.1) by AM0.mail.protection.outlook.com with SMTP; x\n";
    let genuine = "Authentication-Results: spf=pass (sender IP is 192.0.2.1) smtp.mailfrom=example.com; dkim=pass (signature was verified) header.d=example.com;dmarc=pass action=none header.from=example.com;compauth=pass reason=100\n";
    let failed = "Authentication-Results: spf=none smtp.mailfrom=evil.example; dkim=none header.d=none;dmarc=fail action=oreject header.from=example.com\n";
    let ids = &["microsoft365"][..];
    assert_eq!(judge(&format!("{inner}{genuine}{edge}"), ids), Pass);
    assert_eq!(judge(&format!("{inner}{failed}{edge}{genuine}"), ids), Fail);
    assert_eq!(judge(&format!("{inner}{edge}{genuine}"), ids), Nothing, "below the first outside host");
    assert_eq!(judge(&format!("{inner}{edge}{genuine}"), &["mx.shop.example", "microsoft365"]), Nothing);
    assert_eq!(judge(&format!("{inner}{genuine}{edge}"), &["mx.shop.example"]), Nothing, "not configured");
    let named = genuine.replace("Results: ", "Results: microsoft365; ");
    assert_eq!(judge(&named, ids), Nothing, "the word is no id");
}

#[test]
fn email_i2_alignment_is_relaxed_but_no_suffix_is_an_organization() {
    for (signer, from, wanted) in [
        ("example.com", "example.com", true),
        ("mail.example.com", "example.com", true),
        ("example.com", "news.example.com", true),
        ("co.uk", "shop.co.uk", false),
        ("shop.co.uk", "co.uk", false),
        ("com", "example.com", false),
        ("a.example.com", "b.example.com", false),
        ("ample.com", "example.com", false),
        ("EXAMPLE.com.", "example.com", true),
    ] {
        assert_eq!(is_aligned(signer, from), wanted, "{signer} {from}");
    }
}

proptest! {
    #[test]
    fn the_grammar_never_panics(value in "[\\PC]{0,80}") {
        let _ = Field::parse(&value);
    }

    #[test]
    fn the_grammar_never_panics_on_its_own_signs(value in "[a-d.;=()\"\\\\ @/]{0,60}") {
        let _ = Field::parse(&value);
    }

    #[test]
    fn email_i3_security_s1_no_text_in_a_comment_or_quote_becomes_a_pass(inner in "[a-z;=. ]{0,40}") {
        let claim = format!("{inner}; dmarc=pass header.from=example.com");
        prop_assert_eq!(judge(&field(&format!("spf=fail ({claim})")), &["mx.shop.example"]), Nothing);
        prop_assert_eq!(judge(&field(&format!("spf=fail reason=\"{claim}\"")), &["mx.shop.example"]), Nothing);
    }
}

#[test]
fn email_i4_what_a_forwarder_vouches_for_proves_nothing() {
    for fields in [
        "ARC-Authentication-Results: i=1; mx.shop.example; dmarc=pass header.from=example.com\n",
        "X-Original-From: alice@example.com\nX-Authentication-Results: mx.shop.example; dmarc=pass header.from=example.com\n",
        "Authentication-Results: mx.shop.example; arc=pass header.from=example.com\n",
    ] {
        assert_eq!(judge(fields, &["mx.shop.example"]), Nothing, "{fields}");
    }
    assert_eq!(judge(&field("dmarc=pass header.from=example.com"), &[]), Nothing, "nobody is trusted, nobody is proven");
}
