//! Static members: they come back under the name that their operator gave them.

use super::*;

#[test]
fn a_client_that_cannot_come_back_joins_at_once_and_so_does_a_static_member() {
    let mut world = World::new();
    let old = Join { new_id: "a".to_owned(), can_come_back: false, ..member("") };
    let ticket = world.join(&old);
    assert_eq!(world.joined(ticket).member_id, "a");
    let mut world = World::new();
    let ticket = world.join(&instance("i", "a"));
    assert_eq!(world.joined(ticket).member_id, "a");
}

#[test]
fn a_static_member_keeps_its_place_in_a_rebalance_until_it_is_too_late_to_sync() {
    let mut world = World::new();
    let long = Join { session: 10 * REBALANCE, ..instance("i", "a") };
    world.join(&long);
    world.sync("a", 1, &[]);
    let other = world.join(&Join { session: 10 * REBALANCE, ..instance("j", "b") });
    world.pass(REBALANCE);
    // It did not join, and still counts.
    assert_eq!(world.members(other), ["a", "b"]);
    world.sync("b", 2, &[("a", "1"), ("b", "2")]);
    world.pass(REBALANCE - Duration::from_millis(1));
    assert_eq!(world.group.state(), State::Stable);
    world.pass(Duration::from_millis(1));
    assert_eq!((world.group.state(), world.group.member_count()), (State::PreparingRebalance, 1));
}

#[test]
fn a_static_member_that_comes_back_gets_a_new_id_and_its_old_assignment() {
    let mut world = World::new();
    world.join(&instance("i", "a"));
    world.sync("a", 1, &[("a", "x")]);
    let back = world.join(&instance("i", "b"));
    let joined = world.joined(back);
    // It is not told that it leads, or it would assign again.
    assert_eq!((joined.generation, joined.leader.as_str()), (1, "a"));
    assert_eq!((joined.member_id.as_str(), joined.members.len()), ("b", 0));
    let synced = world.sync("b", 1, &[]);
    assert_eq!(world.synced(synced), Ok(&b"x"[..]));
    assert_eq!(world.group.heartbeat(world.now, "a", Some("i"), 1), Err(FencedInstanceId));
    assert_eq!(world.heartbeat("a", 1), Err(UnknownMemberId));
    let newer = Join { can_skip_assignment: true, ..instance("i", "c") };
    let back = world.join(&newer);
    assert_eq!((world.joined(back).skip_assignment, world.members(back)), (true, vec!["c"]));
}

#[test]
fn a_static_member_that_comes_back_while_it_waits_fences_the_one_before() {
    let mut world = World::two(Settings::default());
    let old = world.join(&instance("i", "x"));
    let new = world.join(&instance("i", "y"));
    assert_eq!(world.refused(old), (FencedInstanceId, "x".to_owned()));
    world.join(&member("a"));
    world.join(&member("b"));
    assert_eq!(world.joined(new).member_id, "y");
    let waiting = world.sync("y", 3, &[]);
    // Between join and sync the leader has the old id: everybody joins again.
    let newest = world.join(&instance("i", "z"));
    assert_eq!(world.synced(waiting), Err(FencedInstanceId));
    assert_eq!(world.heartbeat("a", 3), Err(RebalanceInProgress));
    assert!(world.waits(newest));
}

#[test]
fn a_static_member_that_changes_the_choice_of_protocol_starts_a_rebalance() {
    let mut world = World::new();
    world.join(&Join { protocols: protocols(&["range", "other"]), ..instance("i", "a") });
    world.sync("a", 1, &[]);
    let back = world.join(&Join { protocols: protocols(&["other"]), ..instance("i", "b") });
    assert_eq!((world.joined(back).generation, world.joined(back).protocol.as_str()), (2, "other"));
}

#[test]
fn an_instance_id_with_anothers_member_id_is_fenced_and_an_unknown_one_unknown() {
    let mut world = World::two(Settings::default());
    world.join(&instance("i", "x"));
    let wrong = Join { member_id: "a".to_owned(), ..instance("i", "") };
    let ticket = world.join(&wrong);
    assert_eq!(world.refused(ticket), (FencedInstanceId, "a".to_owned()));
    let unknown = Join { member_id: "a".to_owned(), ..instance("j", "") };
    let ticket = world.join(&unknown);
    assert_eq!(world.refused(ticket), (UnknownMemberId, "a".to_owned()));
    assert_eq!(world.leave("a", Some("i")), Err(FencedInstanceId));
    assert_eq!(world.leave("", Some("j")), Err(UnknownMemberId));
    assert_eq!(world.leave("", None), Err(UnknownMemberId));
    assert_eq!(world.leave("", Some("i")), Ok(()));
}
