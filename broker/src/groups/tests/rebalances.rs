//! Rebalances: when they begin, whom they wait for, and what a generation begins with.

use super::*;

#[test]
fn the_initial_delay_begins_again_with_every_newcomer_up_to_the_rebalance_timeout() {
    let delay = Duration::from_secs(3);
    let mut world = World::with(Settings::default());
    let first = world.come("a");
    world.pass(delay - Duration::from_millis(1));
    let second = world.come("b");
    world.pass(Duration::from_millis(1));
    assert!(world.waits(first));
    world.pass(delay);
    assert_eq!(world.joined(first).generation, 1);
    assert_eq!(world.members(first), ["a", "b"]);
    assert_eq!(world.members(second), [""; 0]);

    let mut world = World::with(Settings::default());
    let first = world.join(&Join { rebalance: 2 * delay, ..instance("i", "a") });
    for id in ["b", "c"] {
        world.pass(delay - Duration::from_secs(1));
        world.join(&Join { rebalance: 2 * delay, ..instance(id, id) });
    }
    world.pass(Duration::from_secs(2));
    assert_eq!(world.members(first), ["a", "b", "c"]);
    assert_eq!(world.now, Duration::from_secs(1000) + 2 * delay);
}

#[test]
fn a_lone_member_waits_for_the_initial_delay_exactly() {
    let mut world = World::with(Settings::default());
    let ticket = world.come("a");
    assert_eq!(world.group.next_deadline(), Some(world.now + Duration::from_secs(3)));
    world.pass(Duration::from_millis(2999));
    assert!(world.waits(ticket));
    world.pass(Duration::from_millis(1));
    assert_eq!(world.joined(ticket).generation, 1);
}

#[test]
fn a_rebalance_waits_for_an_id_that_was_given_out_until_its_session_would_end() {
    let mut world = World::two(Settings::default());
    let given = world.join(&Join { new_id: "c".to_owned(), ..member("") });
    assert_eq!(world.refused(given).0, MemberIdRequired);
    let (a, b) = (world.join(&member("a")), world.join(&member("b")));
    assert!(world.waits(a) && world.waits(b));
    world.pass(SESSION);
    assert_eq!(world.members(a), ["a", "b"]);
    let late = world.join(&member("c"));
    assert_eq!(world.refused(late), (UnknownMemberId, "c".to_owned()));
}

#[test]
fn who_does_not_join_again_in_time_is_thrown_out_and_the_leader_replaced() {
    let mut world = World::two(Settings::default());
    let third = world.come("c");
    let second = world.join(&member("b"));
    for _ in 0..6 {
        world.pass(REBALANCE / 6 - Duration::from_millis(1));
        let _ = world.heartbeat("a", 2);
    }
    assert!(world.waits(second));
    world.pass(Duration::from_millis(6));
    let joined = world.joined(second);
    assert_eq!((joined.generation, joined.leader.as_str()), (3, "b"));
    assert_eq!(world.members(second), ["b", "c"]);
    assert_eq!(world.joined(third).leader, "b");
    assert_eq!(world.heartbeat("a", 2), Err(UnknownMemberId));
}

#[test]
fn who_does_not_sync_in_time_is_thrown_out_and_those_who_wait_join_again() {
    let mut world = World::two(Settings::default());
    world.join(&member("a"));
    world.join(&member("b"));
    let waiting = world.sync("b", 3, &[]);
    for _ in 0..12 {
        world.pass(REBALANCE / 12);
        let _ = world.heartbeat("a", 3);
    }
    assert_eq!(world.synced(waiting), Err(RebalanceInProgress));
    assert_eq!(world.heartbeat("a", 3), Err(UnknownMemberId));
    let ticket = world.join(&member("b"));
    assert_eq!(world.members(ticket), ["b"]);
}

#[test]
fn a_follower_waits_for_the_leader_and_who_is_left_out_gets_nothing() {
    let mut world = World::two(Settings::default());
    world.join(&member("a"));
    world.join(&member("b"));
    let waiting = world.sync("b", 3, &[("b", "mine")]);
    assert!(world.waits(waiting));
    assert_eq!(world.heartbeat("b", 3), Ok(()));
    let leader = world.sync("a", 3, &[("a", "all")]);
    assert_eq!(world.synced(waiting), Ok(&b""[..]));
    assert_eq!(world.synced(leader), Ok(&b"all"[..]));
    let again = world.sync("a", 3, &[("a", "other")]);
    assert_eq!(world.synced(again), Ok(&b"all"[..]));
    let old = world.sync("a", 2, &[]);
    assert_eq!(world.synced(old), Err(IllegalGeneration));
}

#[test]
fn a_request_that_is_sent_again_is_answered_where_it_was_sent_last() {
    let mut world = World::two(Settings::default());
    let (old, new) = (world.join(&member("a")), world.join(&member("a")));
    assert_eq!(world.refused(old), (RebalanceInProgress, "a".to_owned()));
    world.join(&member("b"));
    assert_eq!(world.joined(new).generation, 3);
    let (old, new) = (world.sync("b", 3, &[]), world.sync("b", 3, &[]));
    assert_eq!(world.synced(old), Err(RebalanceInProgress));
    world.sync("a", 3, &[("b", "x")]);
    assert_eq!(world.synced(new), Ok(&b"x"[..]));
}

#[test]
fn joining_again_starts_a_rebalance_for_the_leader_and_for_who_says_something_else() {
    let mut world = World::two(Settings::default());
    let same = world.join(&member("b"));
    assert_eq!(world.joined(same).generation, 2);
    assert_eq!(world.group.state(), State::Stable);
    let more = Join { protocols: protocols(&["range", "sticky"]), ..member("b") };
    let other = world.join(&more);
    assert!(world.waits(other));
    world.join(&member("a"));
    assert_eq!(world.joined(other).generation, 3);
    // Between join and sync only what is new starts another.
    let lost = world.join(&member("a"));
    assert_eq!((world.joined(lost).generation, world.members(lost)), (3, vec!["a", "b"]));
    world.sync("a", 3, &[]);
    let leader = world.join(&member("a"));
    assert!(world.waits(leader));
    assert_eq!(world.group.state(), State::PreparingRebalance);
}

#[test]
fn who_leaves_is_gone_at_once_and_a_rebalance_that_waited_for_it_ends() {
    let mut world = World::two(Settings::default());
    let waiting = world.join(&member("b"));
    assert_eq!(world.joined(waiting).generation, 2);
    assert_eq!(world.leave("nobody", None), Err(UnknownMemberId));
    assert_eq!(world.leave("a", None), Ok(()));
    assert_eq!(world.heartbeat("b", 2), Err(RebalanceInProgress));
    let third = world.come("c");
    assert!(world.waits(third));
    let waiting = world.join(&member("b"));
    assert_eq!(world.members(waiting), ["b", "c"]);
    world.sync("b", 3, &[]);
    let waiting = world.join(&member("b"));
    assert_eq!(world.leave("c", None), Ok(()));
    assert_eq!(world.members(waiting), ["b"]);
}

#[test]
fn an_id_that_was_given_out_can_leave_and_its_group_rebalances() {
    let mut world = World::two(Settings::default());
    world.join(&Join { new_id: "c".to_owned(), ..member("") });
    assert_eq!(world.leave("c", None), Ok(()));
    assert_eq!(world.heartbeat("a", 2), Err(RebalanceInProgress));
    let ticket = world.join(&member("c"));
    assert_eq!(world.refused(ticket).0, UnknownMemberId);
}

#[test]
fn becoming_empty_takes_a_generation_and_nothing_of_the_members_is_left() {
    let mut world = World::new();
    let empty_bytes = world.group.bytes();
    world.come("a");
    world.sync("a", 1, &[("a", "some")]);
    assert_eq!(world.leave("a", None), Ok(()));
    assert_eq!(world.group.state(), State::Empty);
    assert_eq!(world.group.bytes(), empty_bytes);
    assert!(world.group.is_forgettable());
    world.pass(SESSION);
    assert_eq!(world.group.next_deadline(), None);
    let ticket = world.come("b");
    assert_eq!(world.joined(ticket).generation, 3);
}

#[test]
fn the_protocol_is_the_first_choice_of_most_of_what_all_have() {
    for (lists, choice) in [
        (&[&["a", "b"][..], &["b", "a"], &["b", "a"]][..], "b"),
        (&[&["a", "b"], &["b", "a"]], "a"),
        (&[&["b", "a"], &["a", "b"]], "a"),
        (&[&["x", "a"], &["y", "a"]], "a"),
        (&[&["x", "b", "a"], &["a", "b"], &["z", "b", "a"]], "b"),
    ] {
        let mut world = World::with(Settings::default());
        let mut tickets = Vec::new();
        for (at, list) in lists.iter().enumerate() {
            let id = format!("m{at}");
            let join = Join { protocols: protocols(list), ..instance(&id, &id) };
            tickets.push(world.join(&join));
        }
        for _ in 0..4 {
            world.pass(Duration::from_secs(3));
        }
        assert_eq!(world.joined(tickets[0]).protocol, choice, "{lists:?}");
    }
}

#[test]
fn who_has_nothing_in_common_with_the_group_is_refused() {
    let mut world = World::new();
    for wrong in [
        Join { protocols: Vec::new(), ..member("") },
        Join { protocol_type: String::new(), ..member("") },
    ] {
        let ticket = world.join(&wrong);
        assert_eq!(world.refused(ticket).0, InconsistentGroupProtocol);
    }
    let mut world = World::two(Settings::default());
    for wrong in [
        Join { protocols: protocols(&["sticky"]), ..member("a") },
        Join { protocol_type: "connect".to_owned(), ..member("a") },
    ] {
        let ticket = world.join(&wrong);
        assert_eq!(world.refused(ticket), (InconsistentGroupProtocol, "a".to_owned()));
    }
    assert_eq!(world.group.state(), State::Stable);
}
