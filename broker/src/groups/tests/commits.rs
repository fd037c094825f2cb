//! Who may commit offsets, and what a group reads.

use super::*;

#[test]
fn only_a_member_of_the_present_generation_commits_where_there_are_members() {
    let mut world = World::new();
    let check = |world: &mut World, id: &str, generation, in_transaction| {
        world.group.check_commit(world.now, id, None, generation, in_transaction)
    };
    // An empty group: only who assigns partitions itself.
    assert_eq!(check(&mut world, "anybody", -1, false), Ok(()));
    assert_eq!(check(&mut world, "anybody", 0, false), Err(UnknownMemberId));
    let mut world = World::two(Settings::default());
    for (id, generation, plain, in_transaction) in [
        ("a", 2, Ok(()), Ok(())),
        ("b", 2, Ok(()), Ok(())),
        ("a", 1, Err(IllegalGeneration), Err(IllegalGeneration)),
        ("a", -1, Err(IllegalGeneration), Err(IllegalGeneration)),
        ("x", 2, Err(UnknownMemberId), Err(UnknownMemberId)),
        ("", 2, Err(UnknownMemberId), Err(UnknownMemberId)),
        ("", -1, Err(UnknownMemberId), Ok(())),
    ] {
        assert_eq!(check(&mut world, id, generation, false), plain, "{id} {generation}");
        assert_eq!(check(&mut world, id, generation, true), in_transaction, "{id} {generation}");
    }
    // While others are awaited the present generation goes on; between join and sync it does not.
    world.join(&member("a"));
    assert_eq!(check(&mut world, "b", 2, false), Ok(()));
    world.join(&member("b"));
    assert_eq!(check(&mut world, "b", 2, false), Err(IllegalGeneration));
    assert_eq!(check(&mut world, "b", 3, false), Err(RebalanceInProgress));
    assert_eq!(check(&mut world, "b", 3, true), Ok(()));
}

#[test]
fn a_commit_renews_the_session_of_its_member() {
    let mut world = World::two(Settings::default());
    for _ in 0..3 {
        world.pass(SESSION / 2);
        assert_eq!(world.group.check_commit(world.now, "a", None, 2, false), Ok(()));
        assert_eq!(world.heartbeat("b", 2), Ok(()));
    }
    assert_eq!(world.group.member_count(), 2);
}

#[test]
fn a_group_reads_what_its_members_say_and_everything_if_that_cannot_be_read() {
    let said = |metadata: &'static [u8]| {
        let metadata = Bytes::from_static(metadata);
        vec![Protocol { name: "range".to_owned(), metadata }]
    };
    let mut world = World::new();
    let orders = said(b"\0\x01\0\0\0\x01\0\x01t\xff\xff\xff\xff");
    world.join(&Join { protocols: orders.clone(), ..instance("i", "a") });
    assert!(world.group.is_subscribed_to("t") && !world.group.is_subscribed_to("u"));
    world.join(&Join { protocols: said(b"\0"), ..instance("j", "b") });
    world.join(&Join { protocols: orders, member_id: "a".to_owned(), ..instance("i", "") });
    assert!(world.group.is_subscribed_to("t") && world.group.is_subscribed_to("u"));
    for name in ["i", "j"] {
        assert_eq!(world.leave("", Some(name)), Ok(()));
    }
    world.pass(REBALANCE);
    assert!(!world.group.is_subscribed_to("t"));
}
