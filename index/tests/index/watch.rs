//! Does an index follow its folders?

use crate::fake::Embedder;
use crate::world::{CATS, DOGS, World, documents};
use budgets::{Limits, SystemClock};
use index::{Filter, Follower, Index, IndexError, Meta, NewDocument, Origin, Round, full_id};
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

fn open(world: &World) -> Arc<Index> {
    let clock = Arc::new(SystemClock::default());
    let embed = Arc::new(Embedder::default());
    Arc::new(Index::open_live(&world.data(), embed, clock, &Limits::default()).unwrap())
}

fn look(follower: &mut Follower) -> Round {
    follower.look(&mut |_| {}).unwrap()
}

fn round(created: usize, replaced: usize, deleted: usize, unchanged: usize) -> Round {
    Round { created, replaced, deleted, unchanged, skipped: Vec::new() }
}

#[test]
fn files_that_come_change_and_go_are_followed() {
    let world = World::new(&[CATS, DOGS]);
    let index = open(&world);
    let mut follower = Follower::new(Arc::clone(&index), &[world.docs()]).unwrap();
    assert_eq!(look(&mut follower), round(2, 0, 0, 0));
    assert_eq!(documents(&index, "purr")[0], "cats.md");
    assert_eq!(look(&mut follower), round(0, 0, 0, 0));

    world.write("cats.md", b"# Cats\n\nCats meow for food in the morning.\n");
    world.write("new/owls.txt", b"Owls hoot in the forest.\n");
    assert_eq!(look(&mut follower), round(0, 0, 0, 0), "they may still be being written");
    assert_eq!(look(&mut follower), round(1, 1, 0, 0));
    assert_eq!(documents(&index, "hoot")[0], "new/owls.txt");
    assert_eq!(documents(&index, "meow")[0], "cats.md");

    fs::remove_file(world.docs().join("cats.md")).unwrap();
    assert_eq!(look(&mut follower), round(0, 0, 0, 0));
    assert_eq!(look(&mut follower), round(0, 0, 1, 0));
    assert!(index.document("cats.md").is_none());
}

#[test]
fn what_was_put_by_itself_or_comes_from_elsewhere_stays() {
    let world = World::new(&[CATS, DOGS]);
    world.build();
    let index = open(&world);
    let put = |id: &str| {
        let document = NewDocument {
            id: id.into(),
            file_name: "a.txt".into(),
            source: world.docs().join("gone.txt").to_string_lossy().into(),
            bytes: b"Herons stand in shallow water.".to_vec(),
            meta: Meta::default(),
            origin: Origin::Put,
        };
        index.put(document).unwrap();
    };
    put("herons");
    put(&full_id(Some("acme"), "herons").unwrap());
    let below = world.docs().join("pets");
    let mut follower = Follower::new(Arc::clone(&index), std::slice::from_ref(&below)).unwrap();
    // The same file has another name below this root.
    assert_eq!(look(&mut follower), round(1, 0, 0, 0));
    assert_eq!(look(&mut follower), round(0, 0, 1, 0), "its old name goes");
    let ids: Vec<String> = index.documents(&Filter::ALL, None, 9).into_iter().map(|info| info.id).collect();
    assert_eq!(ids, ["cats.md", "dogs.txt", "herons"]);
    assert!(index.document(&full_id(Some("acme"), "herons").unwrap()).is_some());

    fs::remove_dir_all(&below).unwrap();
    for _ in 0..3 {
        let gone = follower.look(&mut |_| {}).unwrap_err();
        assert!(matches!(gone, IndexError::Path { .. }), "{gone}");
    }
    assert!(index.document("dogs.txt").is_some(), "a folder that is not there says nothing of its files");
}

#[test]
fn a_started_index_is_not_read_twice_and_a_broken_file_costs_itself_only() {
    let world = World::new(&[CATS, DOGS, ("empty.txt", " \n")]);
    world.build();
    let index = open(&world);
    let mut follower = Follower::new(Arc::clone(&index), &[world.docs()]).unwrap();
    let first = look(&mut follower);
    assert_eq!((first.created, first.replaced, first.unchanged), (0, 0, 2), "{first:?}");
    let names: Vec<_> = first.skipped.iter().map(|skipped| skipped.path.file_name().unwrap()).collect();
    assert_eq!(names, ["empty.txt"]);
    assert_eq!(
        look(&mut follower),
        round(0, 0, 0, 0),
        "a file that cannot be read is not tried at every look"
    );
    assert_eq!(index.info().revision, 0, "nothing was committed");

    let read_only = Arc::new(world.open());
    assert!(matches!(Follower::new(read_only, &[world.docs()]), Err(IndexError::ReadOnly)));
    let nowhere = Follower::new(index, &[world.dir.path().join("nowhere")]);
    assert!(matches!(nowhere, Err(IndexError::Path { .. })));
}

#[test]
fn a_thread_goes_on_looking_until_it_is_dropped() {
    let world = World::new(&[CATS]);
    let index = open(&world);
    let mut follower = Follower::new(Arc::clone(&index), &[world.docs()]).unwrap();
    look(&mut follower);
    let (said, heard) = channel();
    let tell = move |round: Result<&Round, &IndexError>| said.send(round.unwrap().clone()).unwrap();
    let watch = follower.follow(Duration::from_millis(10), tell).unwrap();
    world.write("owls.txt", b"Owls hoot in the forest.\n");
    assert_eq!(heard.recv_timeout(Duration::from_secs(20)).unwrap(), round(1, 0, 0, 0));
    assert_eq!(documents(&index, "hoot")[0], "owls.txt");
    drop(watch);
    assert!(heard.recv().is_err(), "the thread is gone, and its end of the channel with it");
}
