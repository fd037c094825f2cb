//! Members: how they come, how long they stay, how they go.

use super::*;

#[test]
fn a_member_comes_back_with_its_id_leads_alone_and_gets_what_it_assigns() {
    let mut world = World::new();
    let ticket = world.come("a");
    let joined = world.joined(ticket);
    assert_eq!(
        (joined.generation, joined.leader.as_str(), joined.skip_assignment),
        (1, "a", false)
    );
    assert_eq!(world.members(ticket), ["a"]);
    assert_eq!(world.group.describe().protocol, "");
    let ticket = world.sync("a", 1, &[("a", "x"), ("nobody", "y"), ("a", "z")]);
    assert_eq!(world.synced(ticket), Ok(&b"z"[..]));
    assert_eq!(world.group.describe().protocol, "range");
    assert_eq!(world.heartbeat("a", 1), Ok(()));
}

#[test]
fn a_silent_member_is_thrown_out_when_its_session_ends_and_a_heartbeat_renews_it() {
    let mut world = World::two(Settings::default());
    world.pass(SESSION - Duration::from_millis(1));
    assert_eq!(world.heartbeat("a", 2), Ok(()));
    assert_eq!(world.group.member_count(), 2);
    world.pass(Duration::from_millis(1));
    assert_eq!((world.group.member_count(), world.effects.expired), (1, 1));
    assert_eq!(world.heartbeat("a", 2), Err(RebalanceInProgress));
    assert_eq!(world.heartbeat("b", 2), Err(UnknownMemberId));
    let ticket = world.join(&member("a"));
    assert_eq!(world.joined(ticket).generation, 3);
}

#[test]
fn a_member_that_waits_for_an_answer_is_not_silent() {
    let mut world = World::two(Settings::default());
    let waiting = world.join(&member("a"));
    for _ in 0..4 {
        world.pass(SESSION / 2);
        assert_eq!(world.heartbeat("b", 2), Err(RebalanceInProgress));
    }
    assert!(world.waits(waiting));
    world.join(&member("b"));
    assert_eq!(world.members(waiting), ["a", "b"]);
    // From now on its session counts again.
    world.pass(SESSION);
    assert_eq!(world.group.state(), State::Empty);
}

#[test]
fn whose_wait_ends_with_anothers_session_has_a_new_session_of_its_own() {
    let mut world = World::two(Settings::default());
    world.join(&member("a"));
    world.join(&member("b"));
    let waiting = world.sync("b", 3, &[]);
    // Both sessions would end in this instant, and the end of the first answers the second.
    world.pass(SESSION);
    assert_eq!(world.synced(waiting), Err(RebalanceInProgress));
    assert_eq!(world.heartbeat("a", 3), Err(UnknownMemberId));
    assert_eq!(world.heartbeat("b", 3), Err(RebalanceInProgress));
}

#[test]
fn who_leaves_while_it_waits_is_told_that_it_is_unknown() {
    let mut world = World::two(Settings::default());
    let waiting = world.come("c");
    assert_eq!(world.leave("c", None), Ok(()));
    assert_eq!(world.refused(waiting), (UnknownMemberId, String::new()));
    world.join(&member("a"));
    world.join(&member("b"));
    let waiting = world.sync("b", 3, &[]);
    assert_eq!(world.leave("b", None), Ok(()));
    assert_eq!(world.synced(waiting), Err(UnknownMemberId));
}

#[test]
fn a_new_member_whose_client_does_not_ask_again_is_forgotten() {
    let mut world = World::two(Settings::default());
    let long = Join { rebalance: Duration::from_secs(1000), ..member("a") };
    let first = world.join(&long);
    let newcomer = world.come("c");
    for _ in 0..50 {
        world.pass(Duration::from_secs(6));
        let _ = world.heartbeat("b", 2);
    }
    assert_eq!(world.refused(newcomer), (UnknownMemberId, String::new()));
    assert!(world.waits(first));
}

#[test]
fn a_full_group_takes_its_own_members_and_nobody_else() {
    let mut world = World::two(Settings { max_members: 2, ..Settings::default() });
    let third = world.join(&Join { can_come_back: false, ..instance("i", "c") });
    assert_eq!(world.refused(third), (GroupMaxSizeReached, String::new()));
    let a = world.join(&member("a"));
    assert!(world.waits(a));
    let third = world.join(&Join { can_come_back: false, ..instance("i", "c") });
    assert!(world.waits(third));
    let b = world.join(&member("b"));
    assert_eq!(world.refused(b), (GroupMaxSizeReached, String::new()));
    assert_eq!(world.members(a), ["a", "c"]);
}

#[test]
fn no_more_ids_are_given_out_than_a_group_may_have_members() {
    let mut world = World::with(Settings { max_members: 2, ..Settings::default() });
    for (id, error) in
        [("a", MemberIdRequired), ("b", MemberIdRequired), ("c", GroupMaxSizeReached)]
    {
        let ticket = world.join(&Join { new_id: id.to_owned(), ..member("") });
        assert_eq!(world.refused(ticket).0, error);
    }
    world.pass(SESSION);
    let ticket = world.join(&Join { new_id: "c".to_owned(), ..member("") });
    assert_eq!(world.refused(ticket).0, MemberIdRequired);
}
